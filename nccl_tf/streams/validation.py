"""Examples that are held out of the training examples, for a test or for validation."""

import math
from collections.abc import Sequence

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.task import Task


def held_out(labels: np.ndarray, share: float, seed: int, purpose: int, *key: int) -> np.ndarray:
    """Which examples are held out, drawn by the seed: a share of each class, or of all numbers.

    Args:
        labels: Class numbers, integers [n], or numbers to predict, floats [n, ...].
        share: Of each class, in (0, 1); rounded up, but each class keeps an example.
        seed: Seed of the draws, >= 0.
        purpose: One of `seeding`'s constants.
        key: As for `seeding.generator`.

    Returns:
        bool [n].

    Raises:
        UserError: The share is out of range, or no class has two examples.
    """
    if not 0 < share < 1:
        raise UserError(f"received the share {share!r} to hold out: expected a number in (0, 1)")
    groups = labels if labels.dtype.kind in "iu" else np.zeros(len(labels), np.int32)
    held = np.zeros(len(labels), bool)
    for label in np.unique(groups):
        members = np.flatnonzero(groups == label)
        order = seeding.generator(seed, purpose, *key, int(label)).permutation(members)
        # Rounded before, since 0.1 * 70 is above 7.
        count = math.ceil(round(share * len(members), 6))
        held[order[: min(count, len(members) - 1)]] = True
    if not held.any():
        raise UserError(
            f"received {len(labels)} examples, at most one of each class, to hold out a share of: "
            "expected a class with two at least"
        )
    return held


def hold_out(tasks: Sequence[Task], share: float, seed: int) -> tuple[Task, ...]:
    """Tasks that train on the rest; `Stream.with_validation` is the public form.

    Args:
        tasks: The tasks.
        share: Of the training examples of each class, in (0, 1).
        seed: Seed of the draws.

    Raises:
        UserError: As for `held_out`.
    """
    return tuple(_with_validation(task, share, seed) for task in tasks)


def _with_validation(task: Task, share: float, seed: int) -> Task:
    held = held_out(task.train.labels, share, seed, seeding.VALIDATION, task.task_id)
    return Task(
        task.task_id, task.classes, int(np.sum(~held)),
        lambda: task.train.take(~held), lambda: task.test, lambda: task.train.take(held),
    )  # fmt: skip
