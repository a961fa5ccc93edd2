"""Steps of five methods in PyTorch, eager and as one CUDA graph, and of four in Avalanche 0.6.

pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
pip install --no-deps avalanche-lib==0.6.0 torchvision==0.28.0
pip install beautifulsoup4 dill gdown gputil psutil pytorchcv qpsolvers quadprog torchmetrics tqdm
pip install wandb
python -m benchmarks.peers

It times steps here and in Avalanche on permuted MNIST, as users train; compiling and the first task
come before. The PyTorch steps are sides of `resnet_step` and `gpu`.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import nccl_tf
from benchmarks.side_by_side import measure, report, rounds_of
from nccl_tf.learner.execution import STEPS_THAT_PAY
from nccl_tf.streams.arrays import Examples

torch.set_num_threads(2)
EXAMPLES, BATCH, SLOTS, RATE = 3000, 10, 5, 0.1
TASKS = 12
Gradients, Weights = Sequence[torch.Tensor], Mapping[str, torch.Tensor]


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
    """Steps over a stream in eager PyTorch, with a ring memory that is read and written.

    Args:
        network: From images [n, channels, height, width] to logits.
        task: The examples.
        rate: Step size.
        rule: One of `RULES`.
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
        self.device = torch.device(device)
        classes = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
        allowed = torch.zeros(classes.out_features, classes.out_features, dtype=torch.bool)
        for head in task.heads:
            for label in head:
                allowed[label, list(head)] = True
        self.allowed = allowed.to(device)
        self.logits = torch.zeros(len(self.images), classes.out_features, device=device)
        self.random = np.random.default_rng(0)
        self.rule = getattr(self, RULES[rule])

    def step(self, number: int) -> None:
        """Learn a batch of the stream, and write half of it."""
        rows = slice(self.batch * number, self.batch * (number + 1))
        images, labels = (part[rows] for part in self.stream)
        first = len(self.labels) + (self.batch * number) % (2 * self.batch)
        self.learn(images, labels, slice(first, first + max(1, self.batch // 2)))

    def learn(self, images: torch.Tensor, labels: torch.Tensor, into: slice | torch.Tensor) -> None:
        """Read the memory, learn, write the memory at the rows `into`."""
        directions, *logits = self.rule(images, labels)
        with torch.no_grad():
            torch._foreach_add_(list(self.network.parameters()), directions, alpha=-self.rate)
            for column, values in zip((self.images, self.logits), (images, *logits), strict=False):
                column[into] = values[: max(1, self.batch // 2)]

    def draw(self, count: int) -> torch.Tensor:
        """int64 [count]: distinct rows of the memory."""
        drawn = self.random.choice(len(self.labels), count, replace=False)
        return torch.from_numpy(drawn).to(self.device)

    def replay(self, count: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels of a memory batch."""
        drawn = self.draw(count or self.batch)
        return self.images[drawn], self.labels[drawn]

    def outputs(self, images: torch.Tensor, weights: Weights | None = None) -> torch.Tensor:
        """Logits, with weights by name in place of the network's own."""
        inputs = images.permute(0, 3, 1, 2).float() / 255
        if weights is None:
            return self.network(inputs)
        return torch.func.functional_call(self.network, weights, (inputs,))

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The cross-entropy of each example, masked to its own head."""
        masked = logits.masked_fill(~self.allowed[labels], -1e9)
        return functional.cross_entropy(masked, labels, reduction="none")

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean of the examples' losses."""
        return self.losses(self.outputs(images), labels).mean()

    def slopes(self, loss: torch.Tensor) -> Gradients:
        """The gradient of a loss, a tensor per weight."""
        return torch.autograd.grad(loss, list(self.network.parameters()))

    def pair(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Gradients, Gradients]:
        """f_I and g_J: of the loss on a memory batch, and on the stream batch."""
        return self.slopes(self.loss(*self.replay())), self.slopes(self.loss(images, labels))

    def er(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Gradients]:
        """The gradient of the mean loss over both batches."""
        kept, kept_labels = self.replay()
        both = torch.cat([kept, images]), torch.cat([kept_labels, labels])
        return (self.slopes(self.loss(*both)),)

    def nccl(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Gradients]:
        """(alpha_H f_I + beta_H g_J)/alpha with L = 1 and delta = 0.001."""
        f, g = self.pair(images, labels)
        inner, f2, g2 = float(_inner(f, g)), float(_inner(f, f)), float(_inner(g, g))
        if inner <= 0:
            return (_weighed(1 - inner / f2, f, 1.0, g),)
        best = (1 - self.rate) * inner / (g2 * self.rate)
        return (_weighed(1.0, f, min(1 - 1e-3, best), g),)

    def agem(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Gradients]:
        """g_J, without its part along f_I where that is negative."""
        f, g = self.pair(images, labels)
        inner = float(_inner(f, g))
        return (g if inner >= 0 else _weighed(-inner / float(_inner(f, f)), f, 1.0, g),)

    def derpp(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Gradients, torch.Tensor]:
        """The gradient of CE(J) + MSE(h(x), z)/2 + CE(I')/2, and the stream batch's logits."""
        logits, drawn = self.outputs(images), self.draw(self.batch)
        change = functional.mse_loss(self.outputs(self.images[drawn]), self.logits[drawn])
        loss = self.losses(logits, labels).mean() + (change + self.loss(*self.replay())) / 2
        return self.slopes(loss), logits.detach()

    def mir(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Gradients]:
        """f_I + g_J, where the step would raise the loss of I the most of five times as many."""
        g, (kept, kept_labels) = self.slopes(self.loss(images, labels)), self.replay(5 * self.batch)
        with torch.no_grad():
            named = dict(self.network.named_parameters())
            moved = torch._foreach_add(list(named.values()), g, alpha=-self.rate)
            ahead = self.outputs(kept, dict(zip(named, moved, strict=True)))
            rise = self.losses(ahead, kept_labels) - self.losses(self.outputs(kept), kept_labels)
            chosen = rise.topk(self.batch).indices
        f = self.slopes(self.loss(kept[chosen], kept_labels[chosen]))
        return (_weighed(1.0, f, 1.0, g),)


RULES = {
    "er_ring": "er", "nccl_ring": "nccl", "agem": "agem", "derpp": "derpp", "mir": "mir",
}  # fmt: skip
"""The method of `TorchStep` by the name of ours."""


class GraphStep(TorchStep):
    """The same steps without the host: draws, rules and the place of writing are on the device.

    On a GPU a step is captured once as a CUDA graph, which `step` replays. Elsewhere it runs
    operation by operation.

    Args:
        network, task, rate, rule, device: As for `TorchStep`.
    """

    def __init__(self, network: nn.Module, task: Task, rate: float, rule: str, device: str = "cpu"):
        super().__init__(network, task, rate, rule, device)
        # A graph reads and writes the same places each time.
        self.now = [part[: self.batch].clone() for part in self.stream]
        self.written = torch.zeros((), dtype=torch.int64, device=device)
        self.places = torch.arange(max(1, self.batch // 2), device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        if self.device.type == "cuda":
            self.capture()

    def capture(self) -> None:
        """Record a step, after three on a stream of their own, in which libraries set up."""
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                self.learn_now()
        torch.cuda.current_stream().wait_stream(beside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.learn_now()

    def step(self, number: int) -> None:
        """Copy a batch of the stream to where the graph reads it, and learn it."""
        rows = slice(self.batch * number, self.batch * (number + 1))
        for now, part in zip(self.now, self.stream, strict=True):
            now.copy_(part[rows])
        if self.graph is None:
            self.learn_now()
        else:
            self.graph.replay()

    def learn_now(self) -> None:
        """A whole step on the batch in `now`."""
        self.learn(*self.now, len(self.labels) + (self.written + self.places) % (2 * self.batch))
        self.written += self.batch

    def draw(self, count: int) -> torch.Tensor:
        """int64 [count]: distinct rows of the memory."""
        return torch.rand(len(self.labels), device=self.device).topk(count).indices

    def nccl(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Gradients]:
        """As `TorchStep.nccl`, by selects."""
        f, g = self.pair(images, labels)
        inner, f2, g2 = _inner(f, g), _inner(f, f), _inner(g, g)
        best = (1 - self.rate) * inner / (g2 * self.rate)
        alpha_h = torch.where(inner <= 0, 1 - inner / f2, 1.0)
        beta_h = torch.where(inner <= 0, 1.0, best.clamp(max=1 - 1e-3))
        return (_weighed(alpha_h, f, beta_h, g),)

    def agem(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Gradients]:
        """As `TorchStep.agem`, by selects."""
        f, g = self.pair(images, labels)
        return (_weighed((-_inner(f, g) / _inner(f, f)).clamp(min=0), f, 1.0, g),)


def _inner(left: Gradients, right: Gradients) -> torch.Tensor:
    return sum(torch.sum(a * b) for a, b in zip(left, right, strict=True))


def _weighed(
    left_weight: float | torch.Tensor,
    left: Gradients,
    right_weight: float | torch.Tensor,
    right: Gradients,
) -> Gradients:
    scaled = torch._foreach_mul(list(left), left_weight)
    if isinstance(right_weight, torch.Tensor):
        torch._foreach_add_(scaled, torch._foreach_mul(list(right), right_weight))
    else:
        torch._foreach_add_(scaled, list(right), alpha=right_weight)
    return scaled


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
    # As `learn` chooses by the steps of all tasks.
    chunks = TASKS * EXAMPLES // BATCH >= STEPS_THAT_PAY or None
    learner.compile(keras.optimizers.SGD(RATE), jit_compile=chunks)
    tasks = iter(stream)
    learner.fit(next(tasks), verbose=0, batch_size=BATCH)
    return lambda: learner.fit(next(tasks), verbose=0, batch_size=BATCH)


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
        for name, most in (("A-GEM", 0.25), ("ER", 0.35), ("DER", 0.35), ("ER-ACE", 0.35))
    }
    times = {name: 1e3 * BATCH * value / EXAMPLES for name, value in seconds.items()}
    report("A step on permuted MNIST (784-256-256-10), loading and memory included", times, ratios)


if __name__ == "__main__":
    main()
