"""What a run achieves, from its accuracy matrix alone.

The matrix is float [K, K] of fractions: a[i, j] is the accuracy on task j's test set after tasks
0..i have been trained, nan where it was not evaluated. The lower triangle is needed; the entries
a[j - 1, j] above it only for forward transfer.

Definitions: Chaudhry et al. (2018, 2019) for average accuracy and forgetting, Lopez-Paz and
Ranzato (2017) for the transfers, Riemer et al. (2019) for learning accuracy. Every function raises
UserError for a matrix that is not square or is empty, and returns a fraction, nan where it is
undefined.
"""

import numpy as np
from numpy.typing import ArrayLike

from nccl_tf.errors import UserError


def average_accuracy(matrix: ArrayLike) -> float:
    """Mean of the last row: accuracy over all tasks at the end."""
    return float(_square(matrix)[-1].mean())


def forgetting(matrix: ArrayLike) -> float:
    """Mean over j < K of the best accuracy on task j before the end minus the accuracy at the end.

    The best is taken over l in {j..K-1}, so from the moment the task was learned to just before the
    last task. Negative when later tasks raised earlier ones; nan for a single task.
    """
    a = _square(matrix)
    if len(a) == 1:
        return float("nan")
    drops = [np.fmax.reduce(a[j:-1, j]) - a[-1, j] for j in range(len(a) - 1)]
    return float(np.mean(drops))


def learning_accuracy(matrix: ArrayLike) -> float:
    """Mean of the diagonal: accuracy on each task just after it was trained."""
    return float(np.diag(_square(matrix)).mean())


def backward_transfer(matrix: ArrayLike) -> float:
    """Mean over j < K of a[K, j] - a[j, j]; nan for a single task."""
    a = _square(matrix)
    if len(a) == 1:
        return float("nan")
    return float((a[-1] - np.diag(a))[:-1].mean())


def forward_transfer(matrix: ArrayLike, initial_accuracy: ArrayLike) -> float:
    """Mean over j > 1 of a[j - 1, j] minus the untrained network's accuracy on task j.

    Args:
        matrix: float [K, K].
        initial_accuracy: float [K], accuracy on each task before any training.

    Returns:
        A fraction; nan for a single task or where a[j - 1, j] was not evaluated.

    Raises:
        UserError: The lengths differ.
    """
    a = _square(matrix)
    initial = np.asarray(initial_accuracy, np.float64)
    if initial.shape != (len(a),):
        raise UserError(
            f"initial_accuracy has shape {initial.shape}: expected one value for each of the "
            f"{len(a)} tasks of the matrix"
        )
    if len(a) == 1:
        return float("nan")
    return float((np.diag(a, k=1) - initial[1:]).mean())


def _square(matrix: ArrayLike) -> np.ndarray:
    a = np.asarray(matrix, np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise UserError(f"the accuracy matrix has shape {a.shape}: expected [tasks, tasks]")
    return a
