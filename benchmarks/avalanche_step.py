"""A step of A-GEM and of ER here and in Avalanche 0.6, on permuted MNIST, both as a user trains.

pip install torch==2.13.0, then pip install avalanche-lib==0.6.0 (without torchvision's CUDA build:
--no-deps), then python -m benchmarks.avalanche_step. Permuted MNIST comes from TFDS.
"""

import itertools

import keras
import torch

# Without CUDA, torchvision's compiled operators are absent, and so nothing to register fakes for.
torch.library.register_fake = lambda *_, **__: lambda function: function

from avalanche.benchmarks import benchmark_from_datasets  # noqa: E402
from avalanche.benchmarks.utils import as_classification_dataset  # noqa: E402
from avalanche.training.supervised import AGEM, Replay  # noqa: E402

import nccl_tf  # noqa: E402
from benchmarks.side_by_side import measure, report, rounds_of  # noqa: E402

EXAMPLES, BATCH, SLOTS, RATE = 3000, 10, 5, 0.1
TASKS = 12


def _dataset(examples) -> torch.utils.data.TensorDataset:
    images, labels = torch.from_numpy(examples.inputs), torch.from_numpy(examples.labels)
    dataset = torch.utils.data.TensorDataset(images.float() / 255, labels.long())
    dataset.targets = dataset.tensors[1]  # Avalanche reads the labels from here
    return dataset


def avalanche(strategy, tasks, **arguments):
    """A call that trains the next task."""
    datasets = [as_classification_dataset(_dataset(task.train)) for task in tasks]
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 256), torch.nn.ReLU(),
        torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10),
    )  # fmt: skip
    learner = strategy(
        model=model, optimizer=torch.optim.SGD(model.parameters(), RATE),
        criterion=torch.nn.CrossEntropyLoss(), train_mb_size=BATCH, evaluator=None, **arguments,
    )  # fmt: skip
    experiences = iter(benchmark_from_datasets(train=datasets).train_stream)
    learner.train(next(experiences))
    return lambda: learner.train(next(experiences))


def ours(method, stream):
    """A call that trains the next task."""
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    memory = nccl_tf.RingMemory(SLOTS, stream.task_classes, stream.example_shape)
    learner = method(network, memory)
    learner.compile(keras.optimizers.SGD(RATE))
    tasks = itertools.chain(stream)
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
    sides = {
        "A-GEM, ours": ours(nccl_tf.AGEM, stream),
        "A-GEM, Avalanche": avalanche(AGEM, tasks, patterns_per_exp=slots, sample_size=BATCH),
        "ER, ours": ours(nccl_tf.ExperienceReplay, stream),
        "ER, Avalanche": avalanche(Replay, tasks, mem_size=slots * TASKS),
    }
    seconds = measure(sides, rounds)
    ratios = {
        f"{name}, ours / Avalanche": (
            seconds[f"{name}, ours"] / seconds[f"{name}, Avalanche"],
            most,
        )
        for name, most in (("A-GEM", 0.25), ("ER", 0.5))
    }
    times = {name: 1e3 * BATCH * value / EXAMPLES for name, value in seconds.items()}
    report("A step on permuted MNIST (784-256-256-10), loading and memory included", times, ratios)


if __name__ == "__main__":
    main()
