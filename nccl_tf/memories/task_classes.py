"""An index of the classes of each task."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, class_numbers
from nccl_tf.errors import UserError
from nccl_tf.xla import Argument

MOST_ENTRIES = 2**27
"""Entries of a table of tasks and classes, 1 GB of them."""


class TaskClassIndex:
    """Numbers the (task, class) pairs of a stream, in the order of the tasks.

    The same label in two tasks makes two pairs.

    Args:
        task_classes: The classes of each task, in the order of the task ids.

    Attributes:
        count: Number of pairs.
        tasks: int64 [count], the task of each pair.

    Raises:
        UserError: Class numbers are far above the number of classes.
    """

    def __init__(self, task_classes: Sequence[Sequence[int]]):
        pairs = [(task, label) for task, labels in enumerate(task_classes) for label in labels]
        self.count, largest = len(pairs), max(label for _, label in pairs)
        if len(task_classes) * (1 + largest) > MOST_ENTRIES:
            raise UserError(
                f"received task_classes of {len(task_classes):,} tasks with the class {largest:,}: "
                "expected class numbers from 0 without gaps; renumber the classes"
            )
        self.tasks = np.array([task for task, _ in pairs], np.int64)
        # The index of each pair; `count` for a class that is not in the task.
        table = np.full((len(task_classes), 1 + largest), self.count, np.int64)
        for index, pair in enumerate(pairs):
            table[pair] = index
        self._shape = table.shape
        self._bordered = Argument(_bordered(table, self.count), "int64")

    def lookup(self, batch: Batch) -> tf.Tensor:
        """int64 [n]: the index of each example's pair; `count` for padding and unknown pairs."""
        labels = class_numbers(batch.labels)
        places = _places(self._shape, batch.tasks, labels)
        cells = tf.gather(self._bordered.read(), places)
        return tf.where(batch.weights > 0, cells, self.count)


def entries_at(table: np.ndarray, tasks: tf.Tensor, labels: tf.Tensor, outside: Any) -> tf.Tensor:
    """The entries [n] of a table [tasks, classes] at pairs of integers [n] of one dtype.

    Args:
        table: The table.
        tasks: The task of each pair.
        labels: The class of each.
        outside: The entry of a pair that the table has no place for.
    """
    return tf.gather(_bordered(table, outside), _places(table.shape, tasks, labels))


def _bordered(table: np.ndarray, outside: Any) -> np.ndarray:
    """A flat table with a border, which stands for every number that is out of range."""
    return np.pad(table, 1, constant_values=outside).reshape(-1)


def _places(shape: tuple[int, ...], tasks: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Where a bordered table of such a shape has the entries of pairs."""
    rows, columns = (
        # One kernel, where `tf.clip_by_value` is two.
        tf.raw_ops.ClipByValue(
            t=numbers, clip_value_min=_like(numbers, -1), clip_value_max=_like(numbers, count)
        )
        for numbers, count in zip((tasks, labels), shape, strict=True)
    )
    width = shape[1] + 2
    return rows * width + (columns + (width + 1))  # past the border's first row and column


def _like(numbers: tf.Tensor, value: int) -> tf.Tensor:
    return tf.constant(value, numbers.dtype)


def classes_of_tasks(name: str, task_classes: Sequence[Sequence[int]]) -> list[list[int]]:
    """The classes of each task as integers; `name` is the argument that they are given as.

    Raises:
        UserError: They are no whole numbers for each task.
    """
    try:
        return [[operator.index(label) for label in classes] for classes in task_classes]
    except TypeError as error:
        raise UserError(
            f"received {name}={task_classes!r}, expected the class numbers of each task, such as "
            "[[0, 1], [2, 3]]"
        ) from error


def is_listed(label: int, task_classes: Sequence[Sequence[int]]) -> bool:
    """Whether a class is one of any task's."""
    return any(label in labels for labels in task_classes)


def class_table(task_classes: Sequence[Sequence[int]], num_classes: int) -> np.ndarray:
    """bool [tasks, num_classes]: whether a class is one of a task's; those beyond are left out."""
    table = np.zeros((len(task_classes), num_classes), bool)
    for task, labels in enumerate(task_classes):
        table[task, [label for label in labels if label < num_classes]] = True
    return table
