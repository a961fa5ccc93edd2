"""A step of A-GEM, ER, DER and ER-ACE here and in Avalanche 0.6, on permuted MNIST, as users train.

pip install torch==2.13.0, then pip install avalanche-lib==0.6.0 (without torchvision's CUDA build:
--no-deps), then python -m benchmarks.avalanche_step. Permuted MNIST comes from TFDS.
"""

import itertools

import keras
import torch

# Without CUDA, torchvision's compiled operators are absent, and so nothing to register fakes for.
torch.library.register_fake = lambda *_, **__: lambda function: function

from avalanche.benchmarks import (  # noqa: E402
    benchmark_from_datasets,
    task_incremental_benchmark,
)
from avalanche.benchmarks.utils import as_classification_dataset  # noqa: E402
from avalanche.training.supervised import AGEM, DER, ER_ACE, Replay  # noqa: E402

import nccl_tf  # noqa: E402
from benchmarks.side_by_side import measure, report, rounds_of  # noqa: E402

EXAMPLES, BATCH, SLOTS, RATE = 3000, 10, 5, 0.1
TASKS = 12


def _dataset(examples) -> torch.utils.data.TensorDataset:
    images, labels = torch.from_numpy(examples.inputs), torch.from_numpy(examples.labels)
    dataset = torch.utils.data.TensorDataset(images.float() / 255, labels.long())
    dataset.targets = dataset.tensors[1]  # Avalanche reads the labels from here
    return dataset


def avalanche(strategy, tasks, sizes=(784, 256, 256, 10), rate=RATE, **arguments):
    """Avalanche's learner and its experiences, one for each task."""
    datasets = [as_classification_dataset(_dataset(task.train)) for task in tasks]
    layers = [torch.nn.Flatten(), torch.nn.Linear(*sizes[:2])]
    for wide in itertools.pairwise(sizes[1:]):
        layers += [torch.nn.ReLU(), torch.nn.Linear(*wide)]
    model = torch.nn.Sequential(*layers)
    learner = strategy(
        model=model, optimizer=torch.optim.SGD(model.parameters(), rate),
        criterion=torch.nn.CrossEntropyLoss(), train_mb_size=BATCH, evaluator=None, **arguments,
    )  # fmt: skip
    benchmark = task_incremental_benchmark(benchmark_from_datasets(train=datasets))
    return learner, iter(benchmark.train_stream)


def _next_task(strategy, tasks, **arguments):
    """A call that trains Avalanche's learner on the next task."""
    learner, experiences = avalanche(strategy, tasks, **arguments)
    learner.train(next(experiences))
    return lambda: learner.train(next(experiences))


def ours(method, stream, memory, **arguments):
    """A call that trains the next task."""
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = method(network, memory, **arguments)
    learner.compile(keras.optimizers.SGD(RATE))
    tasks = iter(stream)
    learner.fit(next(tasks).train_batches(BATCH), verbose=0)
    return lambda: learner.fit(next(tasks).train_batches(BATCH), verbose=0)


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 7)
    torch.set_num_threads(2)
    stream = nccl_tf.load_stream(
        "permuted_mnist", seed=0, max_tasks=TASKS, examples_per_task=EXAMPLES
    )
    tasks, slots = list(stream), SLOTS * stream.num_classes

    def ring() -> nccl_tf.RingMemory:
        return nccl_tf.RingMemory(SLOTS, stream.task_classes)

    def reservoir() -> nccl_tf.ReservoirMemory:
        return nccl_tf.ReservoirMemory(slots * TASKS)

    replay = {"mem_size": slots * TASKS, "batch_size_mem": BATCH}
    sides = {
        "A-GEM, ours": ours(nccl_tf.AGEM, stream, ring()),
        "A-GEM, Avalanche": _next_task(AGEM, tasks, patterns_per_exp=slots, sample_size=BATCH),
        "ER, ours": ours(nccl_tf.ExperienceReplay, stream, ring()),
        "ER, Avalanche": _next_task(Replay, tasks, mem_size=slots * TASKS),
        "DER, ours": ours(nccl_tf.DER, stream, reservoir(), replay_labels=0.5),
        "DER, Avalanche": _next_task(DER, tasks, alpha=0.5, beta=0.5, **replay),
        "ER-ACE, ours": ours(nccl_tf.ERACE, stream, reservoir()),
        "ER-ACE, Avalanche": _next_task(ER_ACE, tasks, **replay),
    }
    seconds = measure(sides, rounds)
    ratios = {
        f"{name}, ours / Avalanche": (
            seconds[f"{name}, ours"] / seconds[f"{name}, Avalanche"],
            most,
        )
        for name, most in (("A-GEM", 0.25), ("ER", 0.35), ("DER", 0.5), ("ER-ACE", 0.5))
    }
    times = {name: 1e3 * BATCH * value / EXAMPLES for name, value in seconds.items()}
    report("A step on permuted MNIST (784-256-256-10), loading and memory included", times, ratios)


if __name__ == "__main__":
    main()
