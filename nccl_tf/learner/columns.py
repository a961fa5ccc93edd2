"""Columns of a memory beside inputs, labels and tasks, as a learner declares them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from nccl_tf.batch import PLACE_WEIGHTS, Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.step import Logits
from nccl_tf.memories.forms import missing_columns

Column = Callable[[Logits, Batch], tf.Tensor]
"""From the logits of a batch, before the update, and the batch to the entries of its examples,
[n, ...]."""
Extras = dict[str, tuple[tuple[Any, ...], str]]
"""Shape and dtype of the entries by name, as `extras` of `Memory`; a side of None is unknown."""
LOGITS = "logits"
"""Name of the column that dark replay reads."""


def raw_logits(logits: Logits, batch: Batch) -> tf.Tensor:
    """The column of logits: those before any mask."""
    return logits.raw


def with_logits(columns: Mapping[str, Column], dark: float | None) -> Mapping[str, Column]:
    """The columns of a class, and that of logits where there is dark replay."""
    return {**columns, **({LOGITS: raw_logits} if dark else {})}


def extras_of(
    columns: Mapping[str, Column],
    num_classes: int,
    places: Sequence[int | None] = (),
    batch: Batch | None = None,
) -> Extras:
    """Shape and dtype of the entries of columns.

    Args:
        columns: By name, as `Learner.columns`.
        num_classes: Logits of the network.
        places: Sides of the outputs in front of the logits, where there is a target at each place;
            None for a side that the first `fit` tells.
        batch: Examples such as those to be stored, or `tf.TensorSpec`s of them; None for class
            numbers, of inputs that no column looks at.

    Raises:
        UserError: A column takes other arguments, or has no entry for each example.
    """
    outputs = tf.TensorSpec([None, *places, num_classes], tf.float32)
    if batch is None:
        labels, tasks = (tf.TensorSpec([None, *sides], tf.int64) for sides in (places, ()))
        batch = Batch(None, labels, tasks, tf.TensorSpec([None], tf.float32))
    rows = tf.nest.map_structure(
        lambda part: None if part is None else tf.TensorSpec([None, *part.shape[1:]], part.dtype),
        batch,
    )

    def entry(name: str, column: Column) -> tuple[tuple[Any, ...], str]:
        _check_takes_a_batch(name, column)
        traced = tf.function(column, autograph=False).get_concrete_function(
            Logits(outputs, outputs), rows
        )
        entries = traced.structured_outputs
        if not entries.shape.rank or entries.shape[0] is not None:
            raise UserError(
                f"received the column {name!r} with the shape {entries.shape} for a batch "
                "of n examples, expected an entry for each, [n, ...]: reduce over later axes than "
                "the first, such as tf.reduce_max(logits.masked, axis=1)"
            )
        return tuple(entries.shape[1:].as_list()), entries.dtype.name

    return {name: entry(name, column) for name, column in columns.items()}


def _check_takes_a_batch(name: str, column: Column) -> None:
    """Check that a column can be called by logits and a batch.

    Raises:
        UserError: It cannot.
    """
    try:
        inspect.signature(column).bind(None, None)
    except TypeError as error:
        raise UserError(
            f"received the column {name!r}, which takes {inspect.signature(column)}, expected a "
            "function of logits and their batch, such as lambda logits, batch: logits.raw"
        ) from error


def place_column(weights: tf.Tensor) -> Extras:
    """The column of a memory for weights of places [n, places, ...]."""
    return {PLACE_WEIGHTS: (tuple(weights.shape[1:].as_list()), "float32")}


def check_columns(memory: Any, wanted: Extras, learner: str) -> None:
    """Check that a memory has a place for columns.

    Args:
        memory: A `Memory` whose columns were named when it was made.
        wanted: The columns, as `extras_of` returns them.
        learner: The class that keeps them.

    Raises:
        UserError: It lacks one, or has it with entries of another shape.
    """
    for name in missing_columns(memory.extras, wanted):
        raise UserError(
            f"received a {type(memory).__name__} without the column {name!r} with entries of "
            f"shape {tuple(wanted[name][0])}, which {learner} keeps of an example: build it with "
            f"extras={wanted}, or without shapes"
        )


def with_place_weights(batch: Batch, memory: Any, loss: ExampleLoss) -> Batch:
    """A batch with weights of places where a memory keeps some: unless it has its own, 1, and 0
    where the loss ignores the label.

    Args:
        batch: Examples.
        memory: A `Memory` that is allocated, or None.
        loss: Of the learner.

    Raises:
        UserError: The batch has some, and the memory has no column for them.
    """
    if memory is None:
        return batch
    has_column = PLACE_WEIGHTS in memory.extras
    if batch.place_weights is not None and not has_column:
        raise UserError(
            f"received weights of places, and a {type(memory).__name__} without a column for "
            "them: give the first fit some too, such as ones, or build the memory with "
            f"extras={place_column(batch.place_weights)}"
        )
    if batch.place_weights is None and has_column:
        shape = tf.shape(batch.labels)[: loss.place_axes + 1]
        batch = loss.counted(batch.with_place_weights(tf.ones(shape)))
    return batch
