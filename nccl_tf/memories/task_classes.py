"""The pairs of task and class, numbered."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch


class TaskClassIndex:
    """Numbers the pairs of a task and one of its classes, in the order of the tasks.

    A label that comes again in another task is a cell of its own there.

    Args:
        task_classes: The classes of each task, in the order of the task ids.
    """

    def __init__(self, task_classes: Sequence[Sequence[int]]):
        pairs = [(task, label) for task, labels in enumerate(task_classes) for label in labels]
        self.count = len(pairs)
        self.tasks = np.array([task for task, _ in pairs], np.int32)
        # Number of each (task, class); the number after the last one for what is no cell.
        self._table = np.full(
            (len(task_classes), 1 + max(label for _, label in pairs)), self.count, np.int32
        )
        for number, pair in enumerate(pairs):
            self._table[pair] = number

    def lookup(self, batch: Batch) -> tf.Tensor:
        """int32 [n]: the cell of each example; `count` for padding and for what has no cell."""
        tasks, classes = self._table.shape
        known = (batch.tasks < tasks) & (batch.labels < classes) & (batch.weights > 0)
        keys = tf.where(known, batch.tasks * classes + batch.labels, 0)
        return tf.where(known, tf.gather(self._table.reshape(-1), keys), self.count)
