"""Checks of task ids on the host: one that a call names, and those that come with the data."""

import operator
from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.batch import split_inputs
from nccl_tf.errors import UserError

MOST_TASKS = 2**31
"""Task ids are int32."""


def check_task_id(task_id: Any) -> None:
    """Check that a task is named by a whole number from 0, below 2**31.

    Raises:
        UserError: It is not.
    """
    try:
        if 0 <= operator.index(task_id) < MOST_TASKS:
            return
    except TypeError:
        pass
    raise UserError(
        f"received task_id={task_id!r}, expected a whole number from 0, the task's place in the "
        "stream, below 2**31"
    )


def check_ids_range(tasks: Any) -> None:
    """Check that task ids are numbers that a memory can hold, before anything cuts them to 32 bits.

    Args:
        tasks: int [n], of any leading dimensions, or a scalar; None where there are none. What are
            no integers is left to `check_ids_form`.

    Raises:
        UserError: One is below 0, or 2**31 or above.
    """
    ids = np.asarray(0 if tasks is None else tasks).reshape(-1)
    if ids.dtype.kind not in "iu":
        return
    outside = (ids < 0) | (ids >= MOST_TASKS)
    if outside.any():
        raise UserError(
            f"received an example of task {ids[outside.argmax()]}, expected whole numbers from 0, "
            "the task's place in the stream, below 2**31"
        )


def check_named_once(has_heads: bool, in_data: bool, by: str | None) -> None:
    """Check that one thing names the task of examples, and does where there are heads.

    Args:
        has_heads: Whether the learner has a head for each task.
        in_data: Whether the data name the task of each example.
        by: What else names it, "call" or "fit"; None for nothing.

    Raises:
        UserError: The call and the data do, or nothing does.
    """
    if in_data and by == "call":
        raise UserError("received task_id and data with tasks of their own: leave one of them out")
    if has_heads and not in_data and by is None:
        raise UserError(
            "received examples without their task for a learner with a head for each task: "
            'pass task_id=..., or x as {"inputs": inputs, "task": task ids}'
        )


def check_ids_dtype(dtype: Any) -> None:
    """Check that task ids are integers.

    Args:
        dtype: Theirs, NumPy's or TensorFlow's.

    Raises:
        UserError: They are not.
    """
    kind = tf.as_dtype(dtype)
    if not kind.is_integer:
        raise UserError(
            f"received task ids of dtype {kind.name}, expected integers from 0: convert them with "
            'tasks.astype("int32")'
        )


def check_ids_form(x: Any) -> None:
    """Check that the task ids in data are integers, one for each example.

    Args:
        x: What a verb received as x; data of which no form is known are left alone.

    Raises:
        UserError: They are not.
    """
    element = getattr(x, "element_spec", x)
    element = element[0] if isinstance(element, tuple) and element else element
    if not (isinstance(element, dict) and "inputs" in element):
        return
    tasks: Any = split_inputs(element)[1]
    if isinstance(tasks, (int, float, list, tuple)):
        raise UserError(
            f"received the task ids of examples as {type(tasks).__name__}, expected an array of "
            "integers, one for each example: convert a list with np.asarray(tasks), or pass the "
            "task of all examples as task_id"
        )
    if not (hasattr(tasks, "dtype") and hasattr(tasks, "shape")):
        return
    check_ids_dtype(tasks.dtype)
    rank = tf.TensorShape(tasks.shape).rank
    if rank not in (1, None):
        raise UserError(
            f"received task ids of shape {tuple(tasks.shape)}, expected one for each example: take "
            "tasks.reshape(-1), or pass the task of all examples as task_id"
        )


def check_ids_known(learner: Any, batches: Any) -> None:
    """Check that a learner has a head for the tasks of examples.

    Args:
        learner: The learner; one with a single head knows them all.
        batches: What Keras reads to predict, eager.

    Raises:
        UserError: It has none.
    """
    if learner.heads is None:
        return
    for batch in batches:
        tasks = split_inputs(batch[0] if isinstance(batch, (tuple, list)) else batch)[1]
        if tasks is None:
            continue
        for part in learner.distribute_strategy.experimental_local_results(tasks):
            ids = np.asarray(part).reshape(-1)
            unknown = ids[(ids < 0) | (ids >= len(learner.heads.classes))]
            if unknown.size:
                raise_no_head(unknown[0], len(learner.heads.classes))


def raise_no_head(task_id: Any, count: int) -> None:
    """Say that there is no head for a task among those of `count` tasks.

    Raises:
        UserError: Always.
    """
    raise UserError(
        f"received task {task_id}, but the learner has heads for {count} tasks: pass the classes "
        "of every task as `heads`, or add a head with learner.add_classes"
    )
