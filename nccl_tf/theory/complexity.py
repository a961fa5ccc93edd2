"""How long it takes: oracle calls, the time to reach a tolerance, the measured rate."""

import numpy as np
import numpy.typing as npt

from nccl_tf.errors import UserError

Sequence = npt.NDArray[np.float64]


def oracle_calls(steps: int, memory_batch_size: int, batch_size: int, refreshes: int = 0) -> int:
    """Incremental first-order oracle calls: sum of |I_t| + |J_t| over the steps (section 4.2).

    Args:
        steps: T.
        memory_batch_size: |I_t|; 0 for a step without replay.
        batch_size: |J_t|.
        refreshes: Secant estimates of L, each another pass over the memory batch.
    """
    return steps * (memory_batch_size + batch_size) + refreshes * memory_batch_size


def time_to(tolerance: float, gradient_squared_norms: Sequence) -> int | None:
    """T(epsilon): the first t at which the running minimum of |grad f|^2 is at most epsilon.

    Returns:
        The index, or None if it is never reached.
    """
    reached = np.flatnonzero(np.minimum.accumulate(gradient_squared_norms) <= tolerance)
    return int(reached[0]) if len(reached) else None


def rate_slope(horizons: Sequence, minimum_squared_norms: Sequence) -> float:
    """Slope of log min_t |grad f|^2 on log T by least squares; -1/2 is the rate O(1/sqrt(T)).

    Args:
        horizons: T of several runs.
        minimum_squared_norms: min_t |grad f(x^t)|^2 of each.

    Raises:
        UserError: Fewer than two different horizons, or a value that is not above 0.
    """
    horizons, minima = np.asarray(horizons, float), np.asarray(minimum_squared_norms, float)
    if len(np.unique(horizons)) < 2 or min(horizons.min(), minima.min()) <= 0:
        raise UserError(
            f"received the horizons {horizons.tolist()}; a slope needs at least two different "
            "ones, and norms above 0"
        )
    return float(np.polyfit(np.log(horizons), np.log(minima), 1)[0])
