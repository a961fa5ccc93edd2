"""The reduced ResNet-18 and a step of ER and of NCCL in eager PyTorch: a reference for timing."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from nccl_tf.streams.arrays import Examples

torch.set_num_threads(2)


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


def network(classes: int) -> nn.Module:
    """Images [n, 3, 32, 32] to logits."""
    layers = [nn.Conv2d(3, 20, 3, 1, 1, bias=False), nn.BatchNorm2d(20), nn.ReLU()]
    wide = 20
    for width in (20, 40, 80, 160):
        layers += [Block(wide, width, 1 if width == 20 else 2), Block(width, width, 1)]
        wide = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, classes))


class TorchStep:
    """Steps over a stream, with a ring memory that is read and written.

    Args:
        stream: Examples of the last task.
        memory: Examples of the earlier ones.
        heads: Classes of every task.
        rate: Step size.
        rule: "er" or "nccl".
    """

    def __init__(
        self, stream: Examples, memory: Examples, heads: list[list[int]], rate: float, rule: str
    ):
        self.stream = torch.from_numpy(stream.inputs), torch.from_numpy(stream.labels).long()
        room = np.zeros_like(stream.inputs, shape=(25, *stream.inputs.shape[1:]))
        self.images = torch.from_numpy(np.concatenate([memory.inputs, room]))
        self.labels = torch.from_numpy(memory.labels).long()
        classes = 5 * 20
        self.allowed = torch.zeros(classes, classes, dtype=torch.bool)
        for head in heads:
            for label in head:
                self.allowed[label, head] = True
        self.network, self.rate, self.rule = network(classes), rate, rule
        self.random = np.random.default_rng(0)

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy, each example masked to its own head."""
        logits = self.network(images.permute(0, 3, 1, 2).float() / 255)
        masked = logits.masked_fill(~self.allowed[labels], -1e9)
        return functional.cross_entropy(masked, labels)

    def step(self, number: int) -> None:
        """Read the memory, learn, write the memory."""
        rows = slice(10 * number, 10 * number + 10)
        images, labels = (part[rows] for part in self.stream)
        drawn = torch.from_numpy(self.random.choice(len(self.labels), 10, replace=False))
        kept, kept_labels = self.images[drawn], self.labels[drawn]
        weights = list(self.network.parameters())
        if self.rule == "er":
            both = torch.cat([kept, images]), torch.cat([kept_labels, labels])
            directions = torch.autograd.grad(self.loss(*both), weights)
        else:
            directions = self.weighed(weights, (kept, kept_labels), (images, labels))
        with torch.no_grad():
            torch._foreach_add_(weights, directions, alpha=-self.rate)
            self.images[len(self.labels) + (10 * number) % 20 :][:5] = images[:5]

    def weighed(self, weights, memory, stream) -> list[torch.Tensor]:
        """(alpha_H f_I + beta_H g_J)/alpha with L = 1 and delta = 0.001."""
        f = torch.autograd.grad(self.loss(*memory), weights)
        g = torch.autograd.grad(self.loss(*stream), weights)
        inner = float(sum(torch.sum(a * b) for a, b in zip(f, g, strict=True)))
        f2 = float(sum(torch.sum(a * a) for a in f))
        g2 = float(sum(torch.sum(b * b) for b in g))
        if inner <= 0:
            on_memory, on_stream = 1 - inner / f2, 1.0
        else:
            best = (1 - self.rate) * inner / (g2 * self.rate)
            on_memory, on_stream = 1.0, min(1 - 1e-3, best)
        scaled = torch._foreach_mul(list(f), on_memory)
        torch._foreach_add_(scaled, list(g), alpha=on_stream)
        return scaled
