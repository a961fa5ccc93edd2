"""The choice of tasks that are evaluated after each task."""

import re

from nccl_tf.errors import UserError

ALL, NEW = "all", "new"
_EVERY = re.compile(r"every:([1-9][0-9]{0,4})")


def checked_evaluate(value: str, tasks: int) -> str:
    """Check a choice of evaluated tasks and return its shortest name.

    "all": all tasks so far and, for forward transfer, the next one. "new": the task itself, and
    after the last task all of them. "every:k": as "all" after every k-th task and the last one, as
    "new" after the others.

    Args:
        value: One of these.
        tasks: Number of tasks, which are learned one after the other.

    Returns:
        The same, or the first of those that mean the same for so many tasks.

    Raises:
        UserError: It is none of these.
    """
    every = _EVERY.fullmatch(value)
    if value not in (ALL, NEW) and not every:
        raise UserError(
            f"received evaluate={value}: expected all, new, or every:N for an N of 1 or more, such "
            "as every:5"
        )
    if tasks == 1 or value == "every:1":
        return ALL
    return NEW if every and int(every[1]) >= tasks else value


def tasks_to_evaluate(evaluate: str, after: int, tasks: int) -> range:
    """The numbers of the tasks that are evaluated after a task.

    Args:
        evaluate: As for `checked_evaluate`.
        after: Number of the task, from 0; -1 for before the first one, where all are evaluated, as
            forward transfer needs, and with "new" the first one alone.
        tasks: Number of tasks.
    """
    if after < 0:
        return range(1 if evaluate == NEW else tasks)
    every = _EVERY.fullmatch(evaluate)
    is_whole = evaluate == ALL or after == tasks - 1
    if is_whole or (every and (after + 1) % int(every[1]) == 0):
        return range(min(after + 2, tasks))
    return range(after, after + 1)
