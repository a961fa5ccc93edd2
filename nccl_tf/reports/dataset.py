"""Describes a data set: counts, statistics, faults, a sheet of its images, its tasks."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nccl_tf.streams.arrays import Examples, ImageSet
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.task import Task

WIDTH = 80
_GAP = 2
_SHEET_SIDE = 1000
"""A contact sheet is enlarged by a whole factor up to about this many dots a side."""


class Statistics(NamedTuple):
    """Mean and standard deviation of each channel over all pixels, float64 [channels], in [0, 1]
    of the largest value that the data hold."""

    largest: int
    mean: np.ndarray
    std: np.ndarray


def channel_statistics(examples: Examples) -> Statistics:
    """Statistics of the pixels, image by image, so that no copy of the images is made."""
    largest = int(examples.inputs.max())
    count = np.prod(examples.inputs.shape[:3])
    total = examples.inputs.sum(axis=(0, 1, 2), dtype=np.float64)
    square = sum((image.astype(np.float64) ** 2).sum(axis=(0, 1)) for image in examples.inputs)
    mean = total / count
    return Statistics(largest, mean / largest, np.sqrt(square / count - mean**2) / largest)


def counts_table(images: ImageSet, num_classes: int) -> str:
    """Training and test examples of each class, at most 80 columns wide."""
    train, test = (np.bincount(part.labels, minlength=num_classes) for part in images[:2])
    cells = [f"{c}: {a}/{b}" for c, (a, b) in enumerate(zip(train, test, strict=True))]
    width = max(map(len, cells)) + 2
    across = max(WIDTH // width, 1)
    rows = [cells[i : i + across] for i in range(0, len(cells), across)]
    lines = ["".join(cell.ljust(width) for cell in row).rstrip() for row in rows]
    what = "images" if is_images(images) else "examples"
    total = f"{train.sum()} training and {test.sum()} test {what} of {num_classes} classes"
    return "\n".join([total, f"training/test {what} of each class:", *lines])


def is_images(images: ImageSet) -> bool:
    """Whether the inputs are images uint8 [n, height, width, channels]."""
    inputs = images.train.inputs
    return not isinstance(inputs, dict) and inputs.dtype == np.uint8 and inputs.ndim == 4


def targets_table(images: ImageSet) -> str:
    """Counts, and the spread of the numbers to predict."""
    lines = [f"{len(images.train.labels)} training and {len(images.test.labels)} test examples"]
    for title, part in (("training", images.train), ("test", images.test)):
        mean, std = part.labels.mean(), part.labels.std()
        lowest, highest = part.labels.min(), part.labels.max()
        lines.append(
            f"{title} targets: {lowest:.3f} to {highest:.3f}, mean {mean:.3f}, standard deviation "
            f"{std:.3f}"
        )
    return "\n".join(lines)


def faults(images: ImageSet, num_classes: int) -> list[str]:
    """What is wrong with a data set, a sentence each: classes without images, blank images."""
    problems = []
    for title, part in (("training", images.train), ("test", images.test)):
        if not images.has_classes:
            continue
        missing = np.flatnonzero(np.bincount(part.labels, minlength=num_classes) == 0)
        if len(missing):
            problems.append(f"no {title} images of the classes {', '.join(map(str, missing))}")
        if not is_images(images):
            continue
        flat = part.inputs.reshape(len(part.inputs), -1)
        blank = int((flat == flat[:, :1]).all(axis=1).sum())
        if blank:
            problems.append(f"{blank} {title} images are of one colour")
    return problems


def repeated(images: ImageSet) -> int:
    """How many test images are pixel for pixel in the training part too."""
    seen = {image.tobytes() for image in images.train.inputs}
    return sum(image.tobytes() in seen for image in images.test.inputs)


def contact_sheet(examples: Examples, num_classes: int) -> np.ndarray:
    """The first images of each class as one picture, a class after the other.

    Returns:
        uint8 [height, width, 3]. Up to 10 classes have a row of ten images each, more classes one
        image each, ten to a row.
    """
    each = 10 if num_classes <= 10 else 1
    chosen = [np.flatnonzero(examples.labels == c)[:each] for c in range(num_classes)]
    height, width, channels = examples.inputs.shape[1:]
    tiles = np.full((num_classes * each, height, width, channels), 255, np.uint8)
    brightest = int(examples.inputs.max())
    for c, rows in enumerate(chosen):
        bright = examples.inputs[rows].astype(np.uint16) * 255 // brightest
        tiles[c * each : c * each + len(rows)] = bright
    down = -(-len(tiles) // 10)
    padded = np.full((down * 10, height + _GAP, width + _GAP, channels), 255, np.uint8)
    padded[: len(tiles), _GAP:, _GAP:] = tiles
    rows = padded.reshape(down, 10, *padded.shape[1:])
    sheet = rows.transpose(0, 2, 1, 3, 4).reshape(down * padded.shape[1], -1, channels)
    factor = max(_SHEET_SIDE // max(sheet.shape[:2]), 1)
    sheet = sheet.repeat(factor, axis=0).repeat(factor, axis=1)
    return np.repeat(sheet, 3, axis=2) if channels == 1 else sheet


def tasks_text(stream: Stream, seed: int) -> str:
    """The classes of every task for a seed, at most 80 columns wide."""
    lines = [
        f"Seed {seed} ({stream.head}-head): {stream.num_tasks} tasks, {len(stream.tuning)} held "
        f"out for tuning, {stream.num_tasks - len(stream.tuning)} for evaluation"
    ]
    lines += _task_lines("tuning task", stream.tuning, stream.num_classes)
    lines += _task_lines("task", stream.tasks, stream.num_classes)
    wrapped = (textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines)
    return "\n".join(wrapped)


def _task_lines(title: str, tasks: Sequence[Task], num_classes: int) -> list[str]:
    whole = tasks and len(tasks[0].classes) in (0, num_classes)
    what = "all classes" if tasks and tasks[0].classes else "numbers to predict"
    return [
        f"  {title} {number + 1}: {task.num_train} training examples, "
        + (what if whole else f"classes {', '.join(map(str, task.classes))}")
        for number, task in enumerate(tasks)
    ]
