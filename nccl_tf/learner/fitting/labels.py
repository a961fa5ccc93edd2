"""Checks of class labels on the host, before a step learns from them."""

from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.batch import BatchStack, split_inputs
from nccl_tf.errors import UserError
from nccl_tf.learner.fitting.task_ids import check_ids_dtype, check_ids_range
from nccl_tf.streams.arrays import check_unmasked


def check_label_dtype(dtype: Any) -> None:
    """Check that labels are whole numbers.

    Args:
        dtype: Theirs, NumPy's or TensorFlow's; None where it is not known.

    Raises:
        UserError: They are not.
    """
    if dtype is None:
        return
    kind = tf.as_dtype(dtype)
    if kind == tf.string:
        raise UserError(
            "received labels of dtype string, expected whole class numbers: number them, those of "
            "training and test examples together, with np.unique(labels, return_inverse=True)[1]"
        )
    if not (kind.is_integer or kind.is_bool):
        raise UserError(
            f"received labels of dtype {kind.name}, expected whole class numbers: convert them "
            'with labels.astype("int32"), or name the loss that they are for in compile, such as '
            'loss="mse" for numbers'
        )


def check_labels(
    labels: Any, tasks: Any, weights: Any, num_classes: int, table: np.ndarray | None
) -> None:
    """Check that labels are classes that the learner has for the tasks of their examples.

    Args:
        labels: Arrays [n] or [n, 1], or of more leading dimensions; anything else is left alone.
        tasks: int [n] or a scalar; None where they are not known.
        weights: [n], 0 for padding, which may have any label; None for no padding.
        num_classes: Logits of the network.
        table: bool [tasks, classes], the classes of each task; None where a task may have any.

    Raises:
        UserError: Labels are no whole numbers, or one is no class of its task.
    """
    if not isinstance(labels, (np.ndarray, tf.Tensor)):
        return
    check_label_dtype(labels.dtype)
    labels = np.asarray(labels).reshape(-1)
    if not labels.size:
        return
    counted = np.ones(labels.shape, bool)
    if weights is not None:
        weights = np.asarray(weights)
        counted = weights.reshape(-1) != 0 if weights.size == labels.size else counted
    # Labels of 64 bits are compared before anything cuts them to 32.
    outside = counted & ((labels < 0) | (labels >= num_classes))
    if outside.any():
        remedy = "renumber the classes, or let the network grow with learner.add_classes"
        if num_classes == 1:
            remedy = (
                "give the network two outputs, or compile with BinaryCrossentropy(from_logits=True)"
            )
        raise UserError(
            f"received the label {labels[outside.argmax()]}, expected class numbers from 0 to "
            f"{num_classes - 1}, one for each output of the network: {remedy}"
        )
    if table is not None and tasks is not None:
        _check_classes_of_tasks(labels.astype(np.int32), np.asarray(tasks), counted, table)


def _check_classes_of_tasks(
    labels: np.ndarray, tasks: np.ndarray, counted: np.ndarray, table: np.ndarray
) -> None:
    check_ids_dtype(tasks.dtype)
    tasks = np.broadcast_to(tasks.reshape(-1), labels.shape) if tasks.size == 1 else tasks
    tasks = tasks.reshape(-1)
    if tasks.size != labels.size:
        return
    unknown = counted & ((tasks < 0) | (tasks >= len(table)))
    if unknown.any():
        raise UserError(
            f"received an example of task {tasks[unknown.argmax()]}, but the learner knows the "
            f"classes of {len(table)} tasks: pass the classes of every task as `heads` and to the "
            "memory"
        )
    outside = counted & ~table[np.where(counted, tasks, 0), np.where(counted, labels, 0)]
    if outside.any():
        first = outside.argmax()
        classes = np.flatnonzero(table[tasks[first]]).tolist()
        raise UserError(
            f"received the label {labels[first]} in task {tasks[first]}, whose classes are "
            f"{classes} in the learner's heads or its memory's task_classes: correct the label, "
            "the task or these classes"
        )


def check_weights(weights: Any) -> None:
    """Check the weights of examples.

    Args:
        weights: [n]; None for 1 of each.

    Raises:
        UserError: One is below 0 or NaN.
    """
    check_unmasked(weights, "sample_weight")
    weights = np.asarray(1 if weights is None else weights)
    counted = weights >= 0
    if not counted.all():
        raise UserError(
            f"received the weight {weights[~counted][0]} of an example, expected 0 or more: 0 "
            "leaves an example out; correct sample_weight or class_weight"
        )


def check_is_one_number(labels: Any) -> None:
    """Check that labels are class numbers [n] or [n, 1].

    Raises:
        UserError: They have further sides.
    """
    if isinstance(labels, (np.ndarray, tf.Tensor)) and np.prod(labels.shape[1:]) != 1:
        raise UserError(
            f"received labels of shape {tuple(labels.shape)}, expected class numbers [n]: for "
            "one-hot rows name loss=keras.losses.CategoricalCrossentropy(from_logits=True) in "
            "compile"
        )


def check_label_spec(spec: Any, num_classes: int, takes_numbers: bool) -> None:
    """Check what is known of the labels of a dataset before they come.

    Args:
        spec: Their `tf.TensorSpec`, or a batch of them.
        num_classes: Logits of the network.
        takes_numbers: Whether they have to be class numbers, [n] or [n, 1]; else one-hot rows.

    Raises:
        UserError: They are of another dtype or shape.
    """
    if takes_numbers:
        check_label_dtype(getattr(spec, "dtype", None))
    sides = tf.TensorShape(getattr(spec, "shape", None))[1:]
    if not sides.is_fully_defined():
        return
    one = np.zeros((1, *sides), np.int32)
    if takes_numbers:
        check_is_one_number(one)
    else:
        rows_to_numbers(one, num_classes)


def rows_to_numbers(labels: Any, num_classes: int) -> Any:
    """The class numbers of one-hot rows [..., classes]; what is no array is left alone.

    Raises:
        UserError: They are no rows of so many classes.
    """
    if not isinstance(labels, (np.ndarray, tf.Tensor)):
        return labels
    rows = np.asarray(labels)
    if rows.ndim < 2 or rows.shape[-1] != num_classes:
        raise UserError(
            f"received labels of shape {rows.shape} for a loss that takes one-hot rows, expected "
            f"[n, {num_classes}]: convert them with keras.utils.to_categorical, or take the sparse "
            "loss"
        )
    return rows.argmax(axis=-1)


def check_element(
    element: Any,
    default_task: int,
    num_classes: int,
    table: np.ndarray | None,
    one_hot: bool = False,
    has_classes: bool = True,
) -> None:
    """Check a batch `(x, labels)` or `(x, labels, weights)`, or a stack of them.

    Args:
        element: The batch, or a `BatchStack`.
        default_task: Task of the examples where x names none.
        num_classes: As for `check_labels`.
        table: As for `check_labels`.
        one_hot: Whether labels are one-hot rows.
        has_classes: Whether labels have to be classes.

    Raises:
        UserError: As for `check_labels`, `check_weights` and `check_ids_range`.
    """
    data = element.data if isinstance(element, BatchStack) else element
    if not isinstance(data, (tuple, list)) or len(data) < 2:
        return
    x, labels = data[0], data[1]
    tasks = split_inputs(x)[1]
    weights = data[2] if len(data) > 2 else None
    check_weights(weights)
    check_ids_range(tasks)
    if not has_classes:
        return
    labels = rows_to_numbers(labels, num_classes) if one_hot else labels
    if isinstance(element, BatchStack):
        # Shorter batches of a stack are padded with zeros.
        real = np.arange(labels.shape[1]) < np.asarray(element.sizes)[:, None]
        weights = real if weights is None else real * np.asarray(weights)
    check_labels(
        labels, default_task if tasks is None else np.asarray(tasks), weights, num_classes, table
    )
