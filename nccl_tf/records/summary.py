"""The numbers of a record that follow from its matrix; those that do not, and why."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import nccl_tf.metrics as metrics

AVERAGED = "averaged_accuracy_matrix"
"""The matrix with the averaged weights, in a record of a run with --average_weights."""

_NUMBERS = (
    "average_accuracy", "forgetting", "learning_accuracy", "backward_transfer", "forward_transfer",
)  # fmt: skip
_NEEDS = {
    "forgetting": "the accuracy on each task after every later one",
    "forward_transfer": "the accuracy on each task right before it is trained",
}
"""The accuracies that a metric needs and --evaluate=new does not measure."""


def summarize(
    matrix: Any, initial: Any, joint: bool
) -> tuple[dict[str, float | None], dict[str, str]]:
    """The metrics of a run, and why some of them have no value.

    Args:
        matrix: Accuracies [tasks, tasks], fractions, nan or None where not evaluated.
        initial: Accuracies before training [tasks], fractions, nan or None where not evaluated.
        joint: Whether all tasks are learned at once.

    Returns:
        The metrics by name, None where undefined, and by the names of these the reasons.
    """
    values: dict[str, float | None] = dict.fromkeys(_NUMBERS)
    values["average_accuracy"] = metrics.average_accuracy(matrix)
    if joint:
        return values, _undefined(values, "all tasks are learned at once")
    values["learning_accuracy"] = metrics.learning_accuracy(matrix)
    if len(matrix) < 2:
        return values, _undefined(values, "needs two evaluated tasks or more")
    values["forgetting"] = metrics.forgetting(matrix)
    values["backward_transfer"] = metrics.backward_transfer(matrix)
    values["forward_transfer"] = metrics.forward_transfer(matrix, initial)
    unmeasured = [name for name in _NEEDS if math.isnan(values[name] or 0.0)]
    values |= dict.fromkeys(unmeasured)
    return values, {name: f"needs {_NEEDS[name]}, as with --evaluate=all" for name in unmeasured}


def _undefined(values: Mapping[str, float | None], reason: str) -> dict[str, str]:
    return {name: reason for name, value in values.items() if value is None}


def averaged_numbers(matrix: Any, undefined: bool) -> dict[str, float | None]:
    """The metrics of a run with the averaged weights.

    Args:
        matrix: As for `summarize`.
        undefined: Whether forgetting has no meaning in the run.
    """
    return {
        "averaged_average_accuracy": metrics.average_accuracy(matrix),
        "averaged_forgetting": None if undefined else metrics.forgetting(matrix),
    }


def matrix_to_json(matrix: Iterable[Iterable[float]]) -> list[list[float | None]]:
    """A matrix as JSON values, null where it is nan."""
    return [row_to_json(row) for row in matrix]


def row_to_json(row: Iterable[float]) -> list[float | None]:
    """A row as JSON values, null where it is nan."""
    return [None if math.isnan(a) else float(a) for a in row]
