"""A batch of examples as learners and memories pass it around."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.rng import random_order

PLACE_WEIGHTS = "place_weights"
"""Name of the column with the weights of an example's places, in `Batch.extras` and in memories."""


class Batch(NamedTuple):
    """Examples with the task each belongs to.

    Attributes:
        inputs: [n, ...], as the stream delivers them (uint8 images [n, height, width, channels] in
            the named streams); a dictionary or a tuple of such tensors where there are several.
        labels: int64 [n], the classes; for a loss on other targets these, [n, ...].
        tasks: int64 [n], the task of each example.
        weights: float32 [n]; 0 marks padding, which is neither learned nor stored nor counted.
        extras: Further columns by name, [n, ...] each, such as those a memory declares, and the
            weights of places, where a target at each place weighs for itself.
    """

    inputs: Any
    labels: tf.Tensor
    tasks: tf.Tensor
    weights: tf.Tensor
    extras: dict[str, tf.Tensor] = {}  # noqa: RUF012 (nobody writes into it)

    @property
    def place_weights(self) -> tf.Tensor | None:
        """float32 [n, places, ...], by which an example's loss is a mean; None for 1 at each."""
        return self.extras.get(PLACE_WEIGHTS)

    def with_place_weights(self, places: tf.Tensor) -> "Batch":
        """The batch with weights of places; an example without a place that counts has weight 0.

        Args:
            places: [n, places, ...].
        """
        places = tf.cast(places, tf.float32)
        counts = tf.reduce_any(places > 0, axis=list(range(1, places.shape.rank)))
        weights = tf.where((self.weights > 0) & ~counts, 0.0, self.weights)
        return self._replace(weights=weights, extras={**self.extras, PLACE_WEIGHTS: places})

    def map(self, function: Callable[[tf.Tensor], Any]) -> "Batch":
        """Apply `function` to every column, extras included."""
        extras = {name: function(column) for name, column in self.extras.items()}
        inputs = tf.nest.map_structure(function, self.inputs)
        labels, tasks, weights = (function(column) for column in self[1:4])
        return Batch(inputs, labels, tasks, weights, extras)


def as_batch(
    data: Any,
    default_task: tf.Tensor | int,
    as_targets: Callable[[tf.Tensor], tf.Tensor] | None = None,
    place_axes: int = 0,
) -> Batch:
    """Make a batch of the values that `fit` and `evaluate` deliver.

    Args:
        data: `(x, labels)` or `(x, labels, weights)`, where x is the inputs or
            `{"inputs": inputs, "task": task ids}`, and weights are those of examples, [n], or of
            their places, [n, places, ...].
        default_task: Task of the examples where x carries none.
        as_targets: What makes the batch's labels of those that were delivered; `class_labels` by
            default.
        place_axes: Axes of an example's places, 0 where it has one target.

    Raises:
        UserError: There are no labels or several arrays of them, x is a dictionary with "task" and
            without "inputs", or weights are neither of examples nor of places.
    """
    parts = data if isinstance(data, (tuple, list)) else (data,)
    if not 2 <= len(parts) <= 3:
        raise UserError(
            f"received a batch of {len(parts)} parts; a learner expects (inputs, labels) or "
            "(inputs, labels, weights)"
        )
    check_one_target(parts[1])
    x, labels = parts[0], (as_targets or class_labels)(tf.convert_to_tensor(parts[1]))
    weights = None if len(parts) < 3 or parts[2] is None else tf.convert_to_tensor(parts[2])
    inputs, tasks = split_inputs(x)
    inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
    rows = labels if labels.shape.rank == 1 else tf.fill(tf.shape(labels)[:1], 0)
    if tasks is None:
        tasks = tf.fill(tf.shape(rows), tf.cast(default_task, tf.int64))
    if weights is None:
        weights = tf.ones(tf.shape(rows), tf.float32)
    elif weights.shape.rank not in (None, 1):
        _check_place_weights(weights, labels, place_axes)
        places = tf.cast(weights, tf.float32)
        batch = Batch(inputs, labels, as_task_ids(tasks), _of_examples(places))
        return batch.with_place_weights(places)
    return Batch(inputs, labels, as_task_ids(tasks), tf.cast(weights, tf.float32))


def _check_place_weights(weights: tf.Tensor, labels: tf.Tensor, place_axes: int) -> None:
    """Check that there is a weight for each place of the targets.

    Raises:
        UserError: There is not.
    """
    places = labels.shape[1 : place_axes + 1]
    if place_axes and weights.shape[1:].is_compatible_with(places):
        return
    expected = f", or for each place, [n, {_sides(places)}]" if place_axes else ""
    raise UserError(
        f"received sample weights of shape [n, {_sides(weights.shape[1:])}], expected one for each "
        f"example, [n]{expected}: reshape sample_weight"
    )


def _sides(shape: Any) -> str:
    return ", ".join(map(str, shape))


def _of_examples(places: tf.Tensor) -> tf.Tensor:
    """float32 [n]: 1, or the first weight of a place that is wrong: below 0, NaN or infinite."""
    flat = tf.reshape(places, [tf.shape(places)[0], -1])
    wrong = ~((flat >= 0) & (flat < math.inf))
    first = tf.gather(flat, tf.argmax(tf.cast(wrong, tf.int32), axis=1), batch_dims=1)
    return tf.where(tf.reduce_any(wrong, axis=1), first, 1.0)


def check_one_target(labels: Any) -> None:
    """Check that labels are one array, and not several in a list or a dictionary.

    Raises:
        UserError: They are several.
    """
    parts = labels if isinstance(labels, (list, tuple)) else ()
    if isinstance(labels, dict) or any(len(getattr(part, "shape", ())) for part in parts):
        raise UserError(
            f"received labels in a {type(labels).__name__} of {len(labels)}, expected one array "
            "for the one output of the network: join them, np.column_stack(labels), and split "
            "them in the loss, as docs/several_outputs.md shows"
        )


def as_task_ids(tasks: Any) -> tf.Tensor:
    """Task ids int64 [n].

    Raises:
        UserError: They are no integers, or not one for each example.
    """
    check_task_ids(tasks)
    return tf.cast(tasks, tf.int64)


def check_task_ids(tasks: Any) -> None:
    """Check that task ids are integers, one for each example.

    Args:
        tasks: An array or a tensor; its values are not looked at.

    Raises:
        UserError: They are not.
    """
    if not hasattr(tasks, "dtype"):
        raise UserError(
            f"received the task ids of examples as {type(tasks).__name__}, expected an array of "
            "integers, one for each example: convert a list with np.asarray(tasks), or pass the "
            "task of all examples as task_id"
        )
    kind = tf.as_dtype(tasks.dtype)
    if not kind.is_integer:
        raise UserError(
            f"received task ids of dtype {kind.name}, expected integers from 0: convert them with "
            'tasks.astype("int32")'
        )
    if tf.TensorShape(tasks.shape).rank not in (1, None):
        raise UserError(
            f"received task ids of shape {tuple(tasks.shape)}, expected one for each example: take "
            "tasks.reshape(-1), or pass the task of all examples as task_id"
        )


def class_labels(labels: tf.Tensor) -> tf.Tensor:
    """int64 [n]: class numbers, delivered as integers [n] or [n, 1]."""
    labels = tf.cast(labels, tf.int64)
    count = tf.shape(labels)[0]
    return tf.reshape(labels, [count]) if labels.shape.rank != 1 else labels


def as_floatx(column: tf.Tensor) -> tf.Tensor:
    """float64 in Keras's `floatx`, as Keras takes NumPy's default; other dtypes as they are."""
    column = tf.convert_to_tensor(column)
    return tf.cast(column, keras.config.floatx()) if column.dtype == tf.float64 else column


def class_numbers(labels: tf.Tensor) -> tf.Tensor:
    """int64 [n]: the classes of labels.

    Args:
        labels: Class numbers [n], one-hot rows [n, classes], or of two classes the share of class
            1, float [n], above 1/2 where it is the example's.
    """
    if labels.shape.rank == 1:
        return tf.cast(labels > 0.5, tf.int64) if labels.dtype.is_floating else labels
    return tf.argmax(labels, axis=-1)


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


def rows_with_nan(inputs: Any) -> tf.Tensor | None:
    """bool [n]: the examples with NaN in their inputs [n, ...]; None where none are floats.

    A relu makes 0 of NaN on a processor, so that outputs alone do not show it.
    """
    parts = [part for part in tf.nest.flatten(inputs) if part.dtype.is_floating]
    if not parts:
        return None
    found = [tf.reduce_any(tf.math.is_nan(part), tf.range(1, tf.rank(part))) for part in parts]
    return tf.reduce_any(tf.stack(found), axis=0)


def in_random_order(batch: Batch, seed: tf.Tensor) -> Batch:
    """A batch in uniformly random order, with padding last, by a seed int64 [2]."""
    order = random_order(seed, batch.weights)
    return batch.map(lambda part: tf.gather(part, order))


def concat_batches(*batches: Batch) -> Batch:
    """One batch of all, in order; extras are left out."""

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
