"""The constants of the theory, estimated from a run."""

import numpy as np
import numpy.typing as npt

from nccl_tf.errors import UserError

Matrix = npt.NDArray[np.float64]


def gradient_variance(example_gradients: Matrix) -> float:
    """sigma_f^2 at one x: the mean of |grad f_i - grad f|^2 over the examples.

    The paper takes the supremum over x; take the largest over the visited checkpoints.

    Args:
        example_gradients: [n, d], a gradient per example.
    """
    centred = example_gradients - example_gradients.mean(axis=0)
    return float(np.mean(np.sum(centred**2, axis=1)))


def loss_gap(losses: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Delta_f = f(x^0) - f* in two estimates.

    Args:
        losses: f(x^t) along a run, the first at x^0; cross-entropy, so that f* is at least 0.

    Returns:
        f(x^0), an upper bound, and f(x^0) - min_t f(x^t), a lower bound.
    """
    return float(losses[0]), float(losses[0] - np.min(losses))


def memory_error(population: int, drawn: int, variance: float) -> float:
    """E|e|^2 of the mean gradient of examples drawn uniformly from a population, at a fixed x.

    (n - m)/((n - 1) m) sigma^2. It is the mean square of the memory's mean error and not, as the
    paper calls it, the variance of a norm (E12). A batch from a uniform memory has marginally the
    same law with the batch's size for m.

    Args:
        population: n, examples of all previous tasks.
        drawn: m, examples in the memory or in the batch.
        variance: sigma^2, of the examples' gradients about their mean.

    Raises:
        UserError: `drawn` is not in 1..population.
    """
    if not 1 <= drawn <= population:
        raise UserError(
            f"received {drawn} examples drawn of {population}; expected 1 to {population}"
        )
    if population == 1:
        return 0.0
    return (population - drawn) / ((population - 1) * drawn) * variance


def variance_from_errors(mean_square: float, population: int, drawn: int) -> float:
    """sigma_f^2 from errors of means of examples: the inverse of `memory_error`.

    Args:
        mean_square: Mean of |e|^2 over independent draws.
        population: n, examples that were drawn from.
        drawn: m, examples in each mean.

    Raises:
        UserError: `drawn` is not in 1..population-1, where an error tells of the variance.
    """
    share = memory_error(population, drawn, 1.0)
    if share == 0.0:
        raise UserError(
            f"received means of {drawn} examples of {population}: they have no error that could "
            "tell the variance; draw fewer"
        )
    return mean_square / share


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


def steps_to_tolerance(tolerance: float, gradient_squared_norms: Sequence) -> int | None:
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
