"""Tasks of the tiny stream, as the diagnostics take them."""

import numpy as np

from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task
from tests.tiny import TASK_CLASSES, tiny_batches


def examples(task: int, count: int = 60, seed: int = 0) -> Examples:
    """The examples of `tiny_batches`."""
    ((inputs, labels, _),) = tiny_batches(task, count, batch_size=count, seed=seed)
    return Examples(inputs["inputs"].numpy(), labels.numpy().astype(np.int32))


def tasks(count: int = 60) -> list[Task]:
    """Both tasks, with test examples of their own."""
    return [
        Task(
            i,
            TASK_CLASSES[i],
            count,
            lambda i=i: examples(i, count),
            lambda i=i: examples(i, 30, 9),
        )
        for i in range(2)
    ]
