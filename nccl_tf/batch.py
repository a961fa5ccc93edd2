"""A batch of examples as the learners and the memories pass it around."""

from typing import Any, NamedTuple

import tensorflow as tf


class Batch(NamedTuple):
    """Examples with the task each belongs to.

    Attributes:
        inputs: [n, height, width, channels], as the stream delivers them (uint8 in ours).
        labels: int32 [n].
        tasks: int32 [n], the task of each example.
        weights: float32 [n]; 0 marks padding, which is neither learned nor stored nor counted.
    """

    inputs: tf.Tensor
    labels: tf.Tensor
    tasks: tf.Tensor
    weights: tf.Tensor


def as_batch(data: Any, default_task: tf.Tensor | int) -> Batch:
    """Read what `fit` and `evaluate` deliver.

    Args:
        data: `(x, labels)` or `(x, labels, weights)`, where x is the inputs or
            `{"inputs": inputs, "task": task ids}`.
        default_task: Task of the examples where x carries none.

    Raises:
        ValueError: There are no labels, or x is a dictionary without "inputs".
    """
    parts = data if isinstance(data, (tuple, list)) else (data,)
    if not 2 <= len(parts) <= 3:
        raise ValueError(
            f"received a batch of {len(parts)} parts; a learner expects (inputs, labels) or "
            "(inputs, labels, weights)"
        )
    x, labels = parts[0], tf.cast(parts[1], tf.int32)
    weights = parts[2] if len(parts) == 3 else None
    inputs, tasks = split_inputs(x)
    count = tf.shape(labels)[0]
    labels = tf.reshape(labels, [count]) if labels.shape.rank != 1 else labels
    if tasks is None:
        tasks = tf.fill(tf.shape(labels), tf.cast(default_task, tf.int32))
    if weights is None:
        weights = tf.ones(tf.shape(labels), tf.float32)
    return Batch(inputs, labels, tf.cast(tasks, tf.int32), tf.cast(weights, tf.float32))


def split_inputs(x: Any) -> tuple[tf.Tensor, tf.Tensor | None]:
    """The inputs and the task ids (None where there are none) of a learner's input.

    Raises:
        ValueError: x is a dictionary without "inputs".
    """
    if not isinstance(x, dict):
        return x, None
    if "inputs" not in x:
        raise ValueError(
            f"received inputs named {sorted(x)}; a learner expects inputs or a dictionary "
            'with "inputs" and, where tasks are known, "task"'
        )
    return x["inputs"], x.get("task")


def joined(first: Batch, second: Batch) -> Batch:
    """One batch of both, `first` in front; of stacked batches, one for each place in the stack."""
    examples = first.labels.shape.rank - 1
    return Batch(*(tf.concat([a, b], axis=examples) for a, b in zip(first, second, strict=True)))
