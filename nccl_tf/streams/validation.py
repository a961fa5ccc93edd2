"""Streams whose tasks hold out validation examples of their training examples."""

from collections.abc import Sequence

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task


def hold_out(tasks: Sequence[Task], share: float, seed: int) -> tuple[Task, ...]:
    """Tasks that train on the rest; `Stream.with_validation` is the public form.

    Args:
        tasks: The tasks.
        share: Of the training examples of each class, in (0, 1).
        seed: Seed of the draws.

    Raises:
        UserError: The share is out of range, or leaves a task without examples of either kind.
    """
    if not 0 < share < 1:
        raise UserError(f"share={share!r} is out of range: expected a number in (0, 1)")
    return tuple(_held_out(task, share, seed) for task in tasks)


def _held_out(task: Task, share: float, seed: int) -> Task:
    order = seeding.generator(seed, seeding.VALIDATION, task.task_id).permutation(task.num_train)
    # Numbers to predict are one group; of classes each has its share.
    labels = task.train.labels if task.classes else np.zeros(task.num_train, np.int32)
    held = np.zeros(task.num_train, bool)
    for label in np.unique(labels):
        rows = order[labels[order] == label]
        held[rows[: round(share * len(rows))]] = True
    count = int(held.sum())
    if not 0 < count < task.num_train:
        raise UserError(
            f"received share={share} of the {task.num_train} training examples of task "
            f"{task.task_id}, by class, which leaves {count} for validation: expected some of both"
        )

    def part(rows: np.ndarray) -> Examples:
        return task.train.take(rows)

    return Task(
        task.task_id, task.classes, task.num_train - count,
        lambda: part(~held), lambda: task.test, lambda: part(held),
    )  # fmt: skip
