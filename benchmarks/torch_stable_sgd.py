"""Stable SGD on split CIFAR-100 by the published recipe, in eager PyTorch (which it needs).

python -m benchmarks.torch_stable_sgd [--seeds 0 1 2] [--natural]

What its authors publish (github.com/imirzadeh/stable-continual-learning; rate, decay and dropout
from issue 5 there): all 20 tasks, none held out for tuning, a network whose blocks have one
convolution, pixels / 255, batches of 10 in one pass, logits of other tasks at -1e11, and for each
task from 1 a new SGD with momentum 0.8 and the rate 0.15 * 0.85^task. The tasks of a seed are those
of `run.py --method=stable_sgd --network=resnet18_one_conv --dataset=split_cifar100
--tuning_tasks=0`; with --natural they are the authors' for every seed, whose classes follow each
other by their number. Accuracies of the learned tasks after each task, from which
`nccl_tf.metrics` has average accuracy and forgetting, go to benchmarks/torch_stable_sgd.json, order
by order and seed by seed.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import nccl_tf
from nccl_tf.streams.arrays import Examples

FILE = Path(__file__).with_name("torch_stable_sgd.json")
RATE, DECAY, LEAST_RATE, MOMENTUM, DROPOUT = 0.15, 0.85, 5e-5, 0.8, 0.1
BATCH = 10
WIDTHS = (20, 40, 80, 160)


class Block(nn.Module):
    """One 3x3 convolution; batch norm and dropout after each of two ReLUs."""

    def __init__(self, wide: int, width: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide, width, 3, stride, 1, bias=False), nn.ReLU(),
            nn.BatchNorm2d(width), nn.Dropout(DROPOUT),
        )  # fmt: skip
        self.after = nn.Sequential(nn.ReLU(), nn.BatchNorm2d(width), nn.Dropout(DROPOUT))
        self.shortcut = nn.Identity()
        if stride != 1 or wide != width:
            self.shortcut = nn.Conv2d(wide, width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.body(x) + self.shortcut(x))


def network(classes: int) -> nn.Module:
    """Images [n, 3, 32, 32] to logits [n, classes]."""
    layers = [nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()]
    wide = WIDTHS[0]
    for width in WIDTHS:
        layers += [Block(wide, width, 1 if width == WIDTHS[0] else 2), Block(width, width, 1)]
        wide = width
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(wide, classes))


class Data(NamedTuple):
    """Examples of one task.

    Args:
        classes: Its classes.
        train: Images [n, 3, 32, 32] in [0, 1] and labels [n].
        test: The same.
    """

    classes: Sequence[int]
    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def of_classes(cls, stream: nccl_tf.Stream, classes: Sequence[int]) -> Self:
        """The examples of the classes, in whichever tasks of the stream they are."""
        return cls(
            classes,
            _placed([task.train for task in stream], classes),
            _placed([task.test for task in stream], classes),
        )


def _placed(parts: Sequence[Examples], classes: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    kept = [np.isin(part.labels, classes) for part in parts]
    images = np.concatenate([part.inputs[rows] for part, rows in zip(parts, kept, strict=True)])
    labels = np.concatenate([part.labels[rows] for part, rows in zip(parts, kept, strict=True)])
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return scaled, torch.from_numpy(labels).long()


def accuracies(tasks: Sequence[Data], seed: int) -> list[list[float | None]]:
    """The accuracy matrix [tasks, tasks]; None above the diagonal."""
    torch.manual_seed(seed)
    classes = sum(len(task.classes) for task in tasks)
    model = network(classes)
    masks = torch.full((len(tasks), classes), -1e11)
    for mask, task in zip(masks, tasks, strict=True):
        mask[list(task.classes)] = 0
    result: list[list[float | None]] = []
    for number, task in enumerate(tasks, start=1):
        rate = max(RATE * DECAY**number, LEAST_RATE)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
        model.train()
        images, labels = task.train
        for rows in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            logits = model(images[rows]) + masks[number - 1]
            functional.cross_entropy(logits, labels[rows]).backward()
            optimizer.step()
        model.eval()
        row = []
        for learned, mask in zip(tasks[:number], masks[:number], strict=True):
            images, labels = learned.test
            with torch.no_grad():
                right = (model(images) + mask).argmax(dim=1) == labels
            row.append(round(float(right.float().mean()), 6))
        result.append([*row, *[None] * (len(tasks) - number)])
        print(f"seed {seed}, task {number}: {100 * np.mean(row):.1f} %", flush=True)
    return result


def main() -> None:
    """Train, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--natural", action="store_true")
    asked = parser.parse_args()
    order = "natural" if asked.natural else "drawn"
    for seed in asked.seeds:
        stream = nccl_tf.load_stream("split_cifar100", head="multi", seed=seed, tuning_tasks=0)
        heads = [task.classes for task in stream]
        if asked.natural:
            heads = [tuple(range(first, first + 5)) for first in range(0, 100, 5)]
        matrix = accuracies([Data.of_classes(stream, classes) for classes in heads], seed)
        found = json.loads(FILE.read_text()) if FILE.exists() else {}
        found.setdefault(order, {})[str(seed)] = matrix
        FILE.write_text(json.dumps(found) + "\n")
        accuracy = nccl_tf.metrics.average_accuracy(matrix)
        lost = nccl_tf.metrics.forgetting(matrix)
        print(f"seed {seed}: {100 * accuracy:.1f} %, forgetting {lost:.3f}", flush=True)


if __name__ == "__main__":
    main()
