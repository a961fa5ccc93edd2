"""Metrics of continual learning, computed from the accuracy matrix of a run.

The matrix is float [K, K] of fractions: $a_{i,j}$ is the accuracy on the test set of task j after
training on tasks 0..i, nan where it was not evaluated. All metrics read the lower triangle; forward
transfer also reads the entries $a_{j-1,j}$ above it.

Definitions: Chaudhry et al. (2018, 2019) for average accuracy and forgetting, Lopez-Paz and
Ranzato (2017) for the transfers, Riemer et al. (2019) for learning accuracy. Every function raises
UserError for a matrix that is not square or is empty, and returns a fraction, nan where the metric
is undefined.
"""

import numpy as np
from numpy.typing import ArrayLike

from nccl_tf.errors import UserError


def average_accuracy(matrix: ArrayLike) -> float:
    """Mean of the last row: accuracy over all tasks at the end of the stream.

    Args:
        matrix: float [K, K].

    Example:

    ```python
    matrix = [[0.9, 0.5], [0.7, 0.8]]
    nccl_tf.metrics.average_accuracy(matrix)  # 0.75
    ```
    """
    return float(_check_square(matrix)[-1].mean())


def forgetting(matrix: ArrayLike) -> float:
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
    a = _check_square(matrix)
    if len(a) == 1:
        return float("nan")
    drops = [np.fmax.reduce(a[j:-1, j]) - a[-1, j] for j in range(len(a) - 1)]
    return float(np.mean(drops))


def learning_accuracy(matrix: ArrayLike) -> float:
    """Mean of the diagonal: accuracy on each task right after training on it.

    Args:
        matrix: float [K, K].

    Example:

    ```python
    matrix = [[0.9, 0.5], [0.7, 0.8]]
    nccl_tf.metrics.learning_accuracy(matrix)  # 0.85
    ```
    """
    return float(np.diag(_check_square(matrix)).mean())


def backward_transfer(matrix: ArrayLike) -> float:
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
    a = _check_square(matrix)
    if len(a) == 1:
        return float("nan")
    return float((a[-1] - np.diag(a))[:-1].mean())


def forward_transfer(matrix: ArrayLike, initial_accuracy: ArrayLike) -> float:
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
    a = _check_square(matrix)
    initial = np.asarray(initial_accuracy, np.float64)
    if initial.shape != (len(a),):
        raise UserError(
            f"initial_accuracy has shape {initial.shape}: expected one value for each of the "
            f"{len(a)} tasks of the matrix"
        )
    if len(a) == 1:
        return float("nan")
    return float((np.diag(a, k=1) - initial[1:]).mean())


def _check_square(matrix: ArrayLike) -> np.ndarray:
    a = np.asarray(matrix, np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise UserError(f"the accuracy matrix has shape {a.shape}: expected [tasks, tasks]")
    return a
