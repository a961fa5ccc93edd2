"""A batch of examples as learners and memories pass it around, and a stack of batches."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.rng import random_order


class Batch(NamedTuple):
    """Examples with the task each belongs to.

    Attributes:
        inputs: [n, ...], as the stream delivers them (uint8 images [n, height, width, channels] in
            the named streams); a dictionary or a tuple of such tensors where there are several.
        labels: int32 [n], the classes; for a loss on other targets these, [n, ...].
        tasks: int32 [n], the task of each example.
        weights: float32 [n]; 0 marks padding, which is neither learned nor stored nor counted.
        extras: Further columns by name, [n, ...] each, such as those a memory declares.
    """

    inputs: Any
    labels: tf.Tensor
    tasks: tf.Tensor
    weights: tf.Tensor
    extras: dict[str, tf.Tensor] = {}  # noqa: RUF012 (nobody writes into it)

    def map(self, function: Callable[[tf.Tensor], Any]) -> "Batch":
        """The batch of what `function` makes of every column, extras included."""
        extras = {name: function(column) for name, column in self.extras.items()}
        inputs = tf.nest.map_structure(function, self.inputs)
        labels, tasks, weights = (function(column) for column in self[1:4])
        return Batch(inputs, labels, tasks, weights, extras)


class BatchStack(NamedTuple):
    """Several batches in one element of a dataset, for a train function that loops over them.

    Attributes:
        data: What `fit` delivers, `(x, labels)` or `(x, labels, weights)`; every part has one more
            leading dimension, the number of batches.
        sizes: int32 [steps], the examples in each batch; shorter batches are padded to the longest.
    """

    data: Any
    sizes: tf.Tensor

    @property
    def size(self) -> int | None:
        """Examples in each batch; None where batches may differ in length."""
        return tf.nest.flatten(self.data)[0].shape[1]

    @property
    def is_ragged(self) -> bool:
        """Whether batches may differ in length, so that the padding has to be cut off."""
        return self.size is None

    def batch(self, step: tf.Tensor) -> Any:
        """The data of batch number `step`, int32 scalar, as `fit` delivers a single batch."""
        if self.is_ragged:
            size = self.sizes[step]
            return tf.nest.map_structure(lambda part: part[step, :size], self.data)
        return tf.nest.map_structure(lambda part: part[step], self.data)

    def flat(self) -> Any:
        """The data of all batches as one batch, where none is padded."""
        return tf.nest.map_structure(
            lambda part: tf.reshape(part, [-1, *part.shape[2:]]), self.data
        )


def stack_batches(dataset: tf.data.Dataset, steps: int) -> tf.data.Dataset | None:
    """The same batches, `steps` of them in an element; the last element may have fewer.

    Args:
        dataset: Of batches `(x, labels)` or `(x, labels, weights)`.
        steps: Batches in a stack.

    Returns:
        A dataset of `BatchStack`, or None where batches cannot be stacked: a part is no dense
        tensor, or another dimension than the number of examples is unknown.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    if not all(isinstance(s, tf.TensorSpec) and s.shape.rank for s in specs):
        return None
    if any(size is None for spec in specs for size in spec.shape[1:]):
        return None
    if all(spec.shape[0] is not None for spec in specs):
        return dataset.batch(steps).map(_stack_of_equals).prefetch(1)
    return dataset.map(_with_size).padded_batch(steps).prefetch(1)


@tf.autograph.experimental.do_not_convert
def _stack_of_equals(*data: Any) -> BatchStack:
    steps, size = tf.unstack(tf.shape(tf.nest.flatten(data)[0])[:2])
    return BatchStack(data, tf.fill([steps], size))


@tf.autograph.experimental.do_not_convert
def _with_size(*data: Any) -> BatchStack:
    return BatchStack(data, tf.shape(tf.nest.flatten(data)[0])[0])


def as_batch(
    data: Any,
    default_task: tf.Tensor | int,
    as_targets: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> Batch:
    """Read what `fit` and `evaluate` deliver.

    Args:
        data: `(x, labels)` or `(x, labels, weights)`, where x is the inputs or
            `{"inputs": inputs, "task": task ids}`.
        default_task: Task of the examples where x carries none.
        as_targets: What makes the batch's labels of those that were delivered; `class_labels` by
            default.

    Raises:
        UserError: There are no labels, x is a dictionary with "task" and without "inputs", or
            weights are not [n].
    """
    parts = data if isinstance(data, (tuple, list)) else (data,)
    if not 2 <= len(parts) <= 3:
        raise UserError(
            f"received a batch of {len(parts)} parts; a learner expects (inputs, labels) or "
            "(inputs, labels, weights)"
        )
    x, labels = parts[0], (as_targets or class_labels)(parts[1])
    weights = parts[2] if len(parts) == 3 else None
    inputs, tasks = split_inputs(x)
    rows = labels if labels.shape.rank == 1 else tf.fill(tf.shape(labels)[:1], 0)
    if tasks is None:
        tasks = tf.fill(tf.shape(rows), tf.cast(default_task, tf.int32))
    if weights is None:
        weights = tf.ones(tf.shape(rows), tf.float32)
    elif weights.shape.rank not in (None, 1):
        raise UserError(
            f"received sample weights of shape [n, {', '.join(map(str, weights.shape[1:]))}], "
            "expected one for each example, [n]: places that do not count take "
            "ignore_class=... of the loss"
        )
    return Batch(inputs, labels, tf.cast(tasks, tf.int32), tf.cast(weights, tf.float32))


def class_labels(labels: tf.Tensor) -> tf.Tensor:
    """int32 [n]: class numbers, delivered as integers [n] or [n, 1]."""
    labels = tf.cast(labels, tf.int32)
    count = tf.shape(labels)[0]
    return tf.reshape(labels, [count]) if labels.shape.rank != 1 else labels


def as_floatx(column: tf.Tensor) -> tf.Tensor:
    """float64 in Keras's `floatx`, as Keras takes NumPy's default; other dtypes as they are."""
    column = tf.convert_to_tensor(column)
    return tf.cast(column, keras.config.floatx()) if column.dtype == tf.float64 else column


def class_numbers(labels: tf.Tensor) -> tf.Tensor:
    """int32 [n]: the classes of labels that are class numbers [n] or one-hot rows [n, classes]."""
    if labels.shape.rank == 1:
        return labels
    return tf.argmax(labels, axis=-1, output_type=tf.int32)


def split_inputs(x: Any) -> tuple[Any, tf.Tensor | None]:
    """The inputs and the task ids (None where there are none) of a learner's input.

    A dictionary of "inputs" and, where tasks are known, "task" is taken apart; any other one is
    itself the inputs of a network that has several.

    Raises:
        UserError: x is a dictionary with "task" and without "inputs".
    """
    if not isinstance(x, dict):
        return x, None
    if "task" in x and "inputs" not in x:
        raise UserError(
            f"received inputs named {sorted(x)}; where tasks are known, a learner expects a "
            'dictionary of "inputs", with all of them, and "task"'
        )
    if "inputs" in x and x.keys() <= {"inputs", "task"}:
        return x["inputs"], x.get("task")
    return x, None


def in_random_order(batch: Batch, seed: tf.Tensor) -> Batch:
    """A batch in uniformly random order, with padding last, by a seed int64 [2]."""
    order = random_order(seed, batch.weights)
    return batch.map(lambda part: tf.gather(part, order))


def cut(batch: Batch, size: int) -> Batch:
    """A batch [steps * size, ...] as batches of one size, [steps, size, ...]."""
    return batch.map(lambda part: tf.reshape(part, [-1, size, *part.shape[1:]]))


def joined(batches: Batch) -> Batch:
    """Batches of one size, [steps, size, ...], as one batch, [steps * size, ...]."""
    return batches.map(lambda part: tf.reshape(part, [-1, *part.shape[2:]]))


def concat_batches(*batches: Batch) -> Batch:
    """One batch of all, in their order; extras are left out."""

    def concat(*parts: tf.Tensor) -> tf.Tensor:
        return tf.concat(parts, axis=0)

    inputs = tf.nest.map_structure(concat, *(batch.inputs for batch in batches))
    columns = zip(*(batch[1:4] for batch in batches), strict=True)
    return Batch(inputs, *(concat(*parts) for parts in columns))


def take_rows(inputs: Any, rows: Any) -> Any:
    """The rows of an array or tensor [n, ...], or of each of a structure of them.

    Args:
        inputs: The arrays.
        rows: What takes rows of one: integers [m], a mask, bool [n], or a slice.
    """
    return tf.nest.map_structure(lambda column: column[rows], inputs)
