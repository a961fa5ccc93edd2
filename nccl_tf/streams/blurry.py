"""Blurry streams: the training examples of tasks overlap."""

from collections.abc import Sequence

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task


def blur_tasks(tasks: Sequence[Task], share: float, seed: int) -> tuple[Task, ...]:
    """Deal a share of each task's training examples out to the other tasks.

    The setting of Bang et al. (2021): a task has mostly its own classes, and some examples of every
    other. The examples are drawn at random and dealt out in turn; test examples stay.

    Args:
        tasks: The tasks.
        share: Of the training examples that a task gives away, in [0, 1).
        seed: Seed of the draws.

    Raises:
        UserError: The share is out of range, or there is one task only.
    """
    if not 0 <= share < 1:
        raise UserError(f"share={share!r} is out of range: expected a number in [0, 1)")
    if len(tasks) < 2:
        raise UserError(f"received {len(tasks)} task: expected two or more, that can overlap")
    orders = [
        seeding.generator(seed, seeding.BLUR, task.task_id).permutation(task.num_train)
        for task in tasks
    ]
    labels = [task.train.labels for task in tasks]

    def part(giver: int, taker: int) -> np.ndarray:
        order, place = orders[giver], (taker - giver - 1) % len(tasks)
        dealt = round(share * len(order))
        kept = taker == giver
        return np.sort(order[dealt:] if kept else order[:dealt][place :: len(tasks) - 1])

    def blurred(taker: int, task: Task) -> Task:
        parts = [part(giver, taker) for giver in range(len(tasks))]
        seen = np.concatenate([label[rows] for label, rows in zip(labels, parts, strict=True)])

        def train() -> Examples:
            rows = zip(tasks, parts, strict=True)
            return join_examples([giver.train.take(part) for giver, part in rows if len(part)])

        classes = tuple(np.unique(seen).tolist()) if task.classes else ()
        return Task(task.task_id, classes, len(seen), train, lambda: task.test, task._validation)

    return tuple(blurred(taker, task) for taker, task in enumerate(tasks))


def join_examples(parts: Sequence[Examples]) -> Examples:
    """All examples of several parts of one form, in order; inputs by their names.

    Raises:
        UserError: The inputs of a part have other names than those of the first.
    """
    parts = [part.named_like(parts[0]) for part in parts]
    columns = [np.concatenate(arrays) for arrays in zip(*(p.columns() for p in parts), strict=True)]
    if not isinstance(parts[0].inputs, dict):
        return Examples(*columns)
    return Examples(dict(zip(parts[0].inputs, columns[:-1], strict=True)), columns[-1])
