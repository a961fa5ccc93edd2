"""Examples that are held out of the training examples, for a test or for validation."""

import math
import numbers
from collections.abc import Iterator, Sequence

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.task import Task

TEST_SHARE = 5
"""Of a data set by name without test examples, every fifth example is held out."""


def held_out(
    labels: np.ndarray,
    share: float,
    seed: int,
    purpose: int,
    *key: int,
    windows: np.ndarray | None = None,
) -> np.ndarray:
    """Which examples are held out, drawn by the seed: a share of each class, or of all numbers.

    Args:
        labels: Class numbers, integers [n], or numbers to predict, floats [n, ...].
        share: Of each class, in (0, 1); rounded up, but each class keeps an example.
        seed: Seed of the draws, >= 0.
        purpose: One of `seeding`'s constants.
        key: As for `seeding.generator`.
        windows: The domain of each example, integers [n]: the share is of each class within each
            domain, or of the domain where it has no class twice. None for no domains.

    Returns:
        bool [n].

    Raises:
        UserError: The share is out of range, or there is no class, or domain, with two examples.
    """
    _check_share(share)
    groups = _groups(labels)
    held = np.zeros(len(labels), bool)
    if windows is None:
        held = _drawn(groups, share, seed, purpose, *key)
    else:
        for window, rows in _members(windows):
            part = _drawn(groups[rows], share, seed, purpose, *key, window)
            if not part.any():
                part = _drawn(np.zeros(len(rows), np.int32), share, seed, purpose, *key, window)
            held[rows] = part
    if not held.any():
        what = "class" if windows is None else "domain"
        raise UserError(
            f"received {len(labels)} examples, at most one of each {what}, to hold out a share of: "
            f"expected a {what} with two at least"
        )
    return held


def last_held_out(times: np.ndarray, windows: np.ndarray, share: float) -> np.ndarray:
    """Which examples are held out of data in order of time: the last ones of each window.

    Args:
        times: datetime64 [n]; of the same time, later rows are later.
        windows: The window of each example, integers [n].
        share: Of each window, in (0, 1); rounded up, but each keeps an example.

    Returns:
        bool [n].

    Raises:
        UserError: The share is out of range, or no window has two examples.
    """
    _check_share(share)
    held = np.zeros(len(times), bool)
    for _, rows in _members(windows):
        order = rows[np.argsort(times[rows], kind="stable")]
        held[order[len(rows) - _count(share, len(rows)) :]] = True
    if not held.any():
        raise UserError(
            f"received {len(times)} examples, each of a date of its own, to hold out the last ones "
            "of each window: take fewer tasks, num_tasks=12"
        )
    return held


def every_fifth(labels: np.ndarray, windows: np.ndarray | None = None) -> np.ndarray:
    """Which examples are held out: every fifth of each class, of fewer the last one; else of all.

    Args:
        labels: As for `held_out`.
        windows: Likewise. An example that is the only one of its class in its domain is held out
            where the domain has no class twice, and is its last one.

    Returns:
        bool [n].
    """
    groups = _groups(labels)
    held = np.zeros(len(labels), bool)
    everything = np.zeros(len(labels), np.int32) if windows is None else windows
    for _, rows in _members(everything):
        for _, places in _members(groups[rows]):
            members = rows[places]
            if windows is None or len(members) > 1:
                last = members[-1:]
                held[
                    members[TEST_SHARE - 1 :: TEST_SHARE] if len(members) >= TEST_SHARE else last
                ] = True
        if len(rows) > 1 and not held[rows].any():
            held[rows[-1]] = True
    return held


def _check_share(share: float) -> None:
    if not isinstance(share, numbers.Real) or not 0 < share < 1:
        raise UserError(f"received the share {share!r} to hold out: expected a number in (0, 1)")


def _groups(labels: np.ndarray) -> np.ndarray:
    """The classes of examples, [n]; one for all where targets are numbers, rows or tokens."""
    is_class = labels.ndim == 1 and labels.dtype.kind in "iu"
    return labels if is_class else np.zeros(len(labels), np.int32)


def _members(groups: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each group, and the rows of its members in order."""
    order = np.argsort(groups, kind="stable")
    different, starts = np.unique(groups[order], return_index=True)
    return zip(different.tolist(), np.split(order, starts[1:]), strict=True)


def _count(share: float, members: int) -> int:
    """How many of a group are held out."""
    # Rounded before, since 0.1 * 70 is above 7.
    return min(math.ceil(round(share * members, 6)), members - 1)


def _drawn(groups: np.ndarray, share: float, seed: int, purpose: int, *key: int) -> np.ndarray:
    held = np.zeros(len(groups), bool)
    for group, members in _members(groups):
        order = seeding.generator(seed, purpose, *key, group).permutation(members)
        held[order[: _count(share, len(members))]] = True
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
    rest = Task(
        task.task_id, task.classes, int(np.sum(~held)),
        lambda: task.train.take(~held), lambda: task.test, lambda: task.train.take(held),
    )  # fmt: skip
    rest.class_names, rest.positive = task.class_names, task.positive
    return rest
