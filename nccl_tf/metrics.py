"""Metrics of continual learning, computed from the accuracy matrix of a run.

The matrix is float [K, K] of fractions: $a_{i,j}$ is the accuracy on the test set of task j after
training on tasks 0..i, nan where it was not evaluated. All metrics read the lower triangle; forward
transfer also reads the entries $a_{j-1,j}$ above it.

Definitions: Chaudhry et al. (2018, 2019) for average accuracy and forgetting, Lopez-Paz and
Ranzato (2017) for the transfers, Riemer et al. (2019) for learning accuracy. Every function raises
UserError for a matrix that is not square or is empty, and returns a fraction, nan where the metric
is undefined or an entry that it reads was not evaluated.
"""

# Without NumPy, whose import takes longer than all else that a finished run has to do.
import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from nccl_tf.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def average_accuracy(matrix: "ArrayLike") -> float:
    """Mean of the last row: accuracy over all tasks at the end of the stream.

    Args:
        matrix: float [K, K].

    Example:

    ```python
    matrix = [[0.9, 0.5], [0.7, 0.8]]
    nccl_tf.metrics.average_accuracy(matrix)  # 0.75
    ```
    """
    return _mean(_checked_square(matrix)[-1])


def forgetting(matrix: "ArrayLike") -> float:
    r"""Mean over $j < K$ of the best earlier accuracy on task j minus its accuracy at the end.

    The best is taken over $l \in \{j, \dots, K-1\}$, from the end of task j to the end of the
    second to last task. Negative if later tasks improve earlier ones; nan for a single task.

    Args:
        matrix: float [K, K].

    Example:

    ```python
    matrix = [[0.9, 0.5], [0.7, 0.8]]
    nccl_tf.metrics.forgetting(matrix)  # 0.2
    ```
    """
    a = _checked_square(matrix)
    return _mean([_most([row[j] for row in a[j:-1]]) - a[-1][j] for j in range(len(a) - 1)])


def learning_accuracy(matrix: "ArrayLike") -> float:
    """Mean of the diagonal: accuracy on each task right after training on it.

    Args:
        matrix: float [K, K].

    Example:

    ```python
    matrix = [[0.9, 0.5], [0.7, 0.8]]
    nccl_tf.metrics.learning_accuracy(matrix)  # 0.85
    ```
    """
    a = _checked_square(matrix)
    return _mean([a[j][j] for j in range(len(a))])


def backward_transfer(matrix: "ArrayLike") -> float:
    """Mean over $j < K$ of $a_{K,j} - a_{j,j}$: how later tasks change earlier ones.

    Args:
        matrix: float [K, K].

    Returns:
        A fraction; nan for a single task.

    Example:

    ```python
    matrix = [[0.9, 0.5], [0.7, 0.8]]
    nccl_tf.metrics.backward_transfer(matrix)  # -0.2
    ```
    """
    a = _checked_square(matrix)
    return _mean([a[-1][j] - a[j][j] for j in range(len(a) - 1)])


def forward_transfer(matrix: "ArrayLike", initial_accuracy: "ArrayLike") -> float:
    """Mean over $j > 1$ of $a_{j-1,j}$ minus the accuracy of the untrained network on task j.

    Args:
        matrix: float [K, K].
        initial_accuracy: float [K], accuracy on each task before any training.

    Returns:
        A fraction; nan for a single task or where a[j - 1, j] was not evaluated.

    Raises:
        UserError: The lengths differ.

    Example:

    ```python
    matrix = [[0.9, 0.5], [0.7, 0.8]]
    nccl_tf.metrics.forward_transfer(matrix, initial_accuracy=[0.1, 0.1])  # 0.4
    ```
    """
    a, initial = _checked_square(matrix), _as_lists(initial_accuracy)
    if _shape(initial) != (len(a),):
        raise UserError(
            f"initial_accuracy has shape {_shape(initial)}: expected one value for each of the "
            f"{len(a)} tasks of the matrix"
        )
    return _mean([a[j - 1][j] - initial[j] for j in range(1, len(a))])


def _mean(values: Sequence[float]) -> float:
    """The mean; nan of nothing."""
    return _sum(values) / len(values) if values else math.nan


def _sum(values: Sequence[float]) -> float:
    """The sum, added in the order of NumPy, so that records keep their last digit."""
    count = len(values)
    if count > 128:
        half = count // 2 - count // 2 % 8
        return _sum(values[:half]) + _sum(values[half:])
    total, whole = 0.0, count - count % 8
    if whole:
        # `reduce`, because Python's `sum` corrects for what it rounds.
        a, b, c, d, e, f, g, h = (reduce(add, values[i:whole:8]) for i in range(8))
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    return reduce(add, values[whole:], total)


def _most(values: Sequence[float]) -> float:
    """The greatest; nan where one is nan."""
    return math.nan if any(map(math.isnan, values)) else max(values)


def _checked_square(matrix: "ArrayLike") -> list[list[float]]:
    a = _as_lists(matrix)
    shape = _shape(a)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise UserError(f"the accuracy matrix has shape {shape}: expected [tasks, tasks]")
    return a


def _as_lists(values: Any) -> Any:
    """Array-like numbers as floats in lists, nan for None."""
    if values is None:
        return math.nan
    values = values.__array__().tolist() if hasattr(values, "__array__") else values
    return list(map(_as_lists, values)) if isinstance(values, (list, tuple)) else float(values)


def _shape(values: Any) -> tuple[int, ...]:
    """The shape of lists in lists, of which those on a level have one."""
    if not isinstance(values, list):
        return ()
    inner = {_shape(part) for part in values} or {()}
    if len(inner) > 1:
        raise UserError(f"received rows of the shapes {sorted(inner)}: expected equal ones")
    return (len(values), *inner.pop())
