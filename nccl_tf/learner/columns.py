"""What a memory keeps of an example beside inputs, labels and tasks, as a learner declares it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.learner.step import Logits

Column = Callable[[Logits], tf.Tensor]
"""From the logits of a batch, before the update, to the entries of its examples, [n, ...]."""
Extras = dict[str, tuple[tuple[Any, ...], str]]
"""Shape and dtype of the entries by name, as `extras` of `Memory`; a side of None is unknown."""
LOGITS = "logits"
"""Name of the column that dark replay reads."""


def raw_logits(logits: Logits) -> tf.Tensor:
    """The column of logits: those before any mask."""
    return logits.raw


def with_logits(columns: Mapping[str, Column], dark: float | None) -> Mapping[str, Column]:
    """The columns of a class, and that of logits where there is dark replay."""
    return {**columns, **({LOGITS: raw_logits} if dark else {})}


def extras_of(
    columns: Mapping[str, Column], num_classes: int, places: Sequence[int | None] = ()
) -> Extras:
    """Shape and dtype of the entries of columns.

    Args:
        columns: By name, as `Learner.columns`.
        num_classes: Logits of the network.
        places: Sides of the outputs in front of the logits, where there is a target at each place;
            None for a side that the first `fit` tells.

    Raises:
        UserError: A column has no entry for each example.
    """
    outputs = tf.TensorSpec([None, *places, num_classes], tf.float32)

    def entry(name: str, column: Column) -> tuple[tuple[Any, ...], str]:
        traced = tf.function(column, autograph=False).get_concrete_function(
            Logits(outputs, outputs)
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
