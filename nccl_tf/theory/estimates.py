"""Constants of the theory and its count of calls, estimated from runs."""

from nccl_tf.errors import UserError


def memory_error(population: int, drawn: int, variance: float) -> float:
    r"""$E\|e\|^2$ of the mean gradient of examples drawn uniformly from a population, at a fixed
    $x$.

    $(n - m)/((n - 1) m) \sigma^2$. It is the mean square of the memory's mean error and not, as the
    paper calls it, the variance of a norm (E12). A batch from a uniform memory has the same
    marginal distribution, with the batch size as m.

    Args:
        population: n, examples of all previous tasks.
        drawn: m, examples in the memory or in the batch.
        variance: $\sigma^2$ of the examples' gradients about their mean.

    Raises:
        UserError: `drawn` is not in 1..population.
    """
    if not 1 <= drawn <= population:
        raise UserError(
            f"received {drawn} examples drawn from {population}: expected 1 to {population}"
        )
    if population == 1:
        return 0.0
    return (population - drawn) / ((population - 1) * drawn) * variance


def variance_from_errors(mean_square: float, population: int, drawn: int) -> float:
    r"""$\sigma_f^2$ from the errors of mean gradients: the inverse of `memory_error`.

    Args:
        mean_square: Mean of $\|e\|^2$ over independent draws.
        population: n, examples in the population.
        drawn: m, examples in each mean.

    Raises:
        UserError: `drawn` is not in 1..population-1; the mean of all examples has no error.
    """
    share = memory_error(population, drawn, 1.0)
    if share == 0.0:
        raise UserError(
            f"received means of {drawn} examples from {population}: the mean of all examples has "
            "no error to estimate a variance from; draw fewer"
        )
    return mean_square / share


def oracle_calls(steps: int, memory_batch_size: int, batch_size: int) -> int:
    """Number of incremental first-order oracle calls: sum of $|I_t| + |J_t|$ (section 4.2).

    Args:
        steps: $T$.
        memory_batch_size: $|I_t|$; 0 for steps without replay.
        batch_size: $|J_t|$.
    """
    return steps * (memory_batch_size + batch_size)
