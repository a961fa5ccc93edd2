"""A check that a run fits into the machine's memory."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from nccl_tf.errors import UserError
from nccl_tf.machine import total_memory
from nccl_tf.methods.registry import get_method
from nccl_tf.records.settings import Settings
from nccl_tf.streams.catalog import get_dataset, scheme_of

if TYPE_CHECKING:
    from nccl_tf.streams import Stream

PROCESS_BYTES = 1.5e9
"""What a process holds that trains a network of the paper: TensorFlow, a stream and its graphs.

The median peak of the paper's runs is 1.0 to 1.4 GB on each stream (`peak_memory_bytes`).
"""

# Numbers in an input and training images of the largest data set, by family.
_LARGEST = {"mnist": (28 * 28, 60_000), "cifar": (32 * 32 * 3, 50_000),
            "mini_imagenet": (84 * 84 * 3, 60_000), "other": (1000, 10_000)}  # fmt: skip
# Weights and memory are held once, and twice more while a checkpoint of them is put together.
_COPIES = 3
_BYTES_PER_INDEX_AND_WEIGHT = 12
_MEMORY = "the replay memory"
_CLASSES_OF_NAMED = 100
"""Taken for the classes of a data set by name, of which settings have no number."""


def check_fits(settings: Settings, stream: "Stream", examples: int) -> None:
    """Refuse a run that needs more memory than the machine has.

    Otherwise the operating system would kill the process without a message.

    Args:
        settings: Settings of the run.
        stream: Stream of the run.
        examples: Training examples of the largest task.

    Raises:
        UserError: The minimum the run needs exceeds the machine's memory.
    """
    pixels = math.prod(stream.example_shape)
    needs = bytes_needed(settings, pixels, stream.num_classes, examples)
    there = total_memory()
    if sum(needs.values()) > there:
        flag = max(needs, key=lambda name: needs[name])
        raise UserError(
            f"the run needs {sum(needs.values()) / 1e9:,.1f} GB of memory or more, and this "
            f"machine has {there / 1e9:,.1f} GB: {needs[flag] / 1e9:,.1f} GB are for {flag}; "
            "lower it"
        )


def bytes_needed(
    settings: Settings, pixels: int, num_classes: int, examples: int
) -> dict[str, int]:
    """The least memory that a run needs, in bytes, by the flag that sets it.

    Args:
        settings: What is run.
        pixels: Numbers in one input.
        num_classes: Outputs of the network.
        examples: Training examples of the largest task.
    """
    widths = [pixels, *(settings.hidden or ()), num_classes]
    weights = sum((m + 1) * n for m, n in pairwise(widths))
    per_task = settings.evaluated_tasks if get_method(settings.method).takes_num_tasks else 0
    averages = 0 if settings.average_weights is None else _COPIES
    batch = settings.batch_size + (settings.memory_batch_size or 0)
    return {
        "--hidden": 4 * weights * (_COPIES + per_task + averages) if settings.hidden else 0,
        _MEMORY: _COPIES * (settings.memory_capacity or 0) * (8 + pixels),
        "--batch_size": 4 * batch * sum(widths),
        "--epochs": settings.epochs
        * max(examples, settings.batch_size)
        * _BYTES_PER_INDEX_AND_WEIGHT,
    }


def process_bytes(settings: Settings) -> int:
    """The memory that a process of its own takes for a run, in bytes, before its data are read."""
    family, classes = "other", _CLASSES_OF_NAMED
    if scheme_of(settings.dataset) is None:
        dataset = get_dataset(settings.dataset)
        family, classes = dataset.family, dataset.num_classes
    pixels, images = _LARGEST.get(family, _LARGEST["other"])
    if settings.image_size is not None:
        pixels = 3 * settings.image_size**2
    examples = settings.examples_per_task or images
    needs = bytes_needed(settings, pixels, classes, examples)
    return round(PROCESS_BYTES + sum(needs.values()))
