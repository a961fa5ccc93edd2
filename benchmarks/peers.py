"""Steps of ER, A-GEM, NCCL and GEM in eager PyTorch, and of four methods in Avalanche 0.6.

pip install torch==2.13.0, then pip install avalanche-lib==0.6.0 (without torchvision's CUDA build:
--no-deps), then python -m benchmarks.peers: steps here and in Avalanche on permuted MNIST, as users
train. The PyTorch steps are sides of `resnet_step` and `gpu`.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import nccl_tf
from benchmarks.side_by_side import measure, report, rounds_of
from nccl_tf.methods.gem import projection
from nccl_tf.streams.arrays import Examples

torch.set_num_threads(2)
EXAMPLES, BATCH, SLOTS, RATE = 3000, 10, 5, 0.1
TASKS = 12
Gradients = Sequence[torch.Tensor]


class Block(nn.Module):
    """A basic block of two 3x3 convolutions."""

    def __init__(self, wide: int, width: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.shortcut = nn.Identity()
        if stride != 1:
            convolution = nn.Conv2d(wide, width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet(classes: int, n_f: int = 20) -> nn.Module:
    """Images [n, 3, h, w] to logits: the reduced ResNet-18, or with 64 filters the full one."""
    if n_f == 64:
        layers = [nn.Conv2d(3, n_f, 7, 1, 3, bias=False), nn.BatchNorm2d(n_f)]
    else:
        layers = [nn.Conv2d(3, n_f, 3, 1, 1, bias=False), nn.BatchNorm2d(n_f), nn.ReLU()]
    wide = n_f
    for width in (n_f, 2 * n_f, 4 * n_f, 8 * n_f):
        layers += [Block(wide, width, 1 if width == n_f else 2), Block(width, width, 1)]
        wide = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, classes))


def mlp(pixels: int, classes: int, hidden: Sequence[int]) -> nn.Module:
    """Images of so many pixels to logits."""
    sides = [pixels, *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip(sides, hidden, strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sides[-1], classes))


@dataclass(frozen=True)
class Task:
    """The inputs of a step.

    Args:
        stream: Examples of the last task.
        memory: As many examples of each earlier task as of the others, task after task.
        heads: Classes of every task.
        batch: Examples of the stream, and of the memory, in a step.
    """

    stream: Examples
    memory: Examples
    heads: Sequence[Sequence[int]]
    batch: int = 10


class TorchStep:
    """Steps over a stream, with a ring memory that is read and written.

    Args:
        network: From images [n, channels, height, width] to logits.
        task: The examples.
        rate: Step size.
        rule: "er", "agem", "nccl" or "gem".
        device: Where it is computed.
    """

    def __init__(self, network: nn.Module, task: Task, rate: float, rule: str, device: str = "cpu"):
        def place(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(device)

        stream, memory = task.stream, task.memory
        self.stream = place(stream.inputs), place(stream.labels).long()
        room = np.zeros_like(stream.inputs, shape=(2 * task.batch, *stream.inputs.shape[1:]))
        self.images = place(np.concatenate([memory.inputs, room]))
        self.labels = place(memory.labels).long()
        self.network, self.rate, self.batch = network.to(device), rate, task.batch
        classes = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
        allowed = torch.zeros(classes.out_features, classes.out_features, dtype=torch.bool)
        for head in task.heads:
            for label in head:
                allowed[label, list(head)] = True
        self.allowed, self.past = allowed.to(device), len(task.heads) - 1
        self.random = np.random.default_rng(0)
        rules: dict[str, Callable[..., Gradients]] = {
            "er": self.er, "agem": self.agem, "nccl": self.nccl, "gem": self.gem,
        }  # fmt: skip
        self.rule = rules[rule]

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy, each example masked to its own head."""
        logits = self.network(images.permute(0, 3, 1, 2).float() / 255)
        masked = logits.masked_fill(~self.allowed[labels], -1e9)
        return functional.cross_entropy(masked, labels)

    def gradients(self, images: torch.Tensor, labels: torch.Tensor) -> Gradients:
        """Of the mean loss, a tensor per weight."""
        return torch.autograd.grad(self.loss(images, labels), list(self.network.parameters()))

    def step(self, number: int) -> None:
        """Read the memory, learn, write the memory."""
        rows = slice(self.batch * number, self.batch * (number + 1))
        images, labels = (part[rows] for part in self.stream)
        directions = self.rule(images, labels)
        with torch.no_grad():
            torch._foreach_add_(list(self.network.parameters()), directions, alpha=-self.rate)
            kept = images[: max(1, self.batch // 2)]
            first = len(self.labels) + (self.batch * number) % (2 * self.batch)
            self.images[first : first + len(kept)] = kept

    def replay(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels of a memory batch."""
        drawn = torch.from_numpy(self.random.choice(len(self.labels), self.batch, replace=False))
        drawn = drawn.to(self.labels.device)
        return self.images[drawn], self.labels[drawn]

    def er(self, images: torch.Tensor, labels: torch.Tensor) -> Gradients:
        """The gradient of the mean loss over both batches."""
        kept, kept_labels = self.replay()
        return self.gradients(torch.cat([kept, images]), torch.cat([kept_labels, labels]))

    def nccl(self, images: torch.Tensor, labels: torch.Tensor) -> Gradients:
        """(alpha_H f_I + beta_H g_J)/alpha with L = 1 and delta = 0.001."""
        f, g = self.gradients(*self.replay()), self.gradients(images, labels)
        inner, f2, g2 = float(_inner(f, g)), float(_inner(f, f)), float(_inner(g, g))
        if inner <= 0:
            return _weighed(1 - inner / f2, f, 1.0, g)
        best = (1 - self.rate) * inner / (g2 * self.rate)
        return _weighed(1.0, f, min(1 - 1e-3, best), g)

    def agem(self, images: torch.Tensor, labels: torch.Tensor) -> Gradients:
        """g_J, without its part along f_I where that is negative."""
        f, g = self.gradients(*self.replay()), self.gradients(images, labels)
        inner = float(_inner(f, g))
        return g if inner >= 0 else _weighed(-inner / float(_inner(f, f)), f, 1.0, g)

    def gem(self, images: torch.Tensor, labels: torch.Tensor) -> Gradients:
        """g_J, projected so that it points against no past task's gradient."""
        size = len(self.labels) // self.past
        tasks = [slice(size * task, size * (task + 1)) for task in range(self.past)]
        past = torch.stack(
            [_vector(self.gradients(self.images[rows], self.labels[rows])) for rows in tasks]
        )
        g = self.gradients(images, labels)
        gram, products = past @ past.T, past @ _vector(g)
        arrays = [part.cpu().numpy() for part in (gram, products)]
        weights, _ = projection(*arrays, np.ones(self.past, bool), 0.5, 0.001)
        change = torch.from_numpy(weights).to(past.device) @ past
        parts = torch.split(change, [part.numel() for part in g])
        return [part + more.view_as(part) for part, more in zip(g, parts, strict=True)]


def _inner(left: Gradients, right: Gradients) -> torch.Tensor:
    return sum(torch.sum(a * b) for a, b in zip(left, right, strict=True))


def _weighed(
    left_weight: float, left: Gradients, right_weight: float, right: Gradients
) -> Gradients:
    scaled = torch._foreach_mul(list(left), left_weight)
    torch._foreach_add_(scaled, list(right), alpha=right_weight)
    return scaled


def _vector(gradients: Gradients) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in gradients])


def _dataset(examples) -> torch.utils.data.TensorDataset:
    images, labels = torch.from_numpy(examples.inputs), torch.from_numpy(examples.labels)
    dataset = torch.utils.data.TensorDataset(images.float() / 255, labels.long())
    dataset.targets = dataset.tensors[1]  # Avalanche reads the labels from here
    return dataset


def avalanche(strategy, tasks, sizes=(784, 256, 256, 10), rate=RATE, **arguments):
    """Avalanche's learner and its experiences, one for each task."""
    from avalanche.benchmarks import benchmark_from_datasets, task_incremental_benchmark
    from avalanche.benchmarks.utils import as_classification_dataset

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
    # Without CUDA, torchvision's compiled operators are absent: nothing to register fakes for.
    torch.library.register_fake = lambda *_, **__: lambda function: function
    from avalanche.training.supervised import AGEM, DER, ER_ACE, Replay

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
