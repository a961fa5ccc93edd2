r"""The paper's bounds on gradient norms, with its errata corrected.

Scalars are floats, series over steps are float64 arrays [T]. Losses, $\Gamma$ and $B$ are in units
of the loss, squared norms and $\sigma^2$ in units of the squared gradient.
"""

import numpy as np
import numpy.typing as npt

from nccl_tf.errors import UserError

Series = npt.NDArray[np.float64]
"""One value per step: float [T]."""


def step_bound(
    loss_before: Series,
    loss_after: Series,
    gamma: Series,
    overfitting: Series,
    alpha_h: Series,
    smoothness: float,
    error_squared: Series | float,
) -> Series:
    r"""The lemma's bound on $\|\nabla f(x^t)\|^2$ at each step (eq. 6).

    $$\frac{f(x^t) - f(x^{t+1}) + B + \Gamma}{\alpha_H (1 - L \alpha_H/2)} + \frac{\alpha_H L}{2 (1
    - L \alpha_H/2)} \cdot \text{error\_squared}$$

    With $\|e_t\|^2$ as `error_squared` it holds on every path along which $L$ is a smoothness
    constant; with $\sigma_f^2$, which bounds the mean of $\|e_t\|^2$, it holds in expectation. The
    inequality $\alpha_H < 2/L$ has to be strict (E7): the bound of other steps is nan.

    Args:
        loss_before: $f(x^t)$ [T].
        loss_after: $f(x^{t+1})$ [T].
        gamma: $\Gamma$ in its raw form [T].
        overfitting: $B$ [T].
        alpha_h: $\alpha_H$ [T].
        smoothness: $L$.
        error_squared: $\|e_t\|^2$ [T], or $\sigma_f^2$.

    Returns:
        The bound of each step [T].
    """
    alpha_h = np.asarray(alpha_h, float)
    valid = (alpha_h > 0) & (alpha_h < 2 / smoothness)
    slack = np.where(valid, 1 - 0.5 * smoothness * alpha_h, np.nan)
    change = np.asarray(loss_before, float) - loss_after + overfitting + gamma
    return change / (alpha_h * slack) + 0.5 * alpha_h * smoothness * error_squared / slack


def violation_rate(gradient_squared_norms: Series, bounds: Series) -> float:
    r"""Share of the steps that have a bound on which $\|\nabla f\|^2$ exceeds it; 0 if $L$ is large
    enough.

    Excesses below 1e-9 of the bound count as rounding.

    Args:
        gradient_squared_norms: $\|\nabla f(x^t)\|^2$ [T].
        bounds: The bound of each step [T], nan where a step has none.

    Returns:
        A fraction; nan if no step has a bound.
    """
    bounded = ~np.isnan(bounds)
    if not bounded.any():
        return float("nan")
    norms, bounds = np.asarray(gradient_squared_norms)[bounded], np.asarray(bounds)[bounded]
    return float(np.mean(norms > bounds + 1e-9 * np.abs(bounds)))


def minimum_bound(
    loss_gap: float,
    gamma_sum: float,
    variance: float,
    alpha: float,
    steps: int,
    smoothness: float,
    overfitting_sum: float = 0.0,
) -> float:
    r"""The theorem's bound on $\min_t E\|\nabla f(x^t)\|^2$ for a constant $\alpha = c/\sqrt{T}$
    (theorem 1).

    $(A/\sqrt{T}) ((\Delta_f + \sum \Gamma + \sum B)/c + L c \sigma_f^2/2)$,
    $A = 1/(1 - L \alpha/2)$. The theorem drops $\sum B$ by $E[B] = 0$, which does not follow for
    adaptive steps (E8); an intermediate line of the proof keeps it.

    Args:
        loss_gap: $\Delta_f = f(x^0) - f^*$, or its upper bound $f(x^0)$.
        gamma_sum: Sum of $\Gamma$ over the steps.
        variance: $\sigma_f^2$.
        alpha: $\alpha$, so that $c = \alpha \sqrt{T}$.
        steps: $T$.
        smoothness: $L$.
        overfitting_sum: Sum of $B$ over the steps; 0 for the theorem as printed.

    Raises:
        UserError: $\alpha L$ is not below 2 (E7), or $T$ is below 1.
    """
    if steps < 1 or not 0 < alpha * smoothness < 2:
        raise UserError(
            f"received alpha L = {alpha * smoothness:g} and T = {steps}; the theorem holds for "
            "0 < alpha L < 2 and T of at least 1"
        )
    c = alpha * np.sqrt(steps)
    scale = 1 / (1 - 0.5 * smoothness * alpha)
    total = (loss_gap + gamma_sum + overfitting_sum) / c + 0.5 * smoothness * c * variance
    return float(scale / np.sqrt(steps) * total)


def best_c(loss_gap: float, gamma_sum: float, variance: float, smoothness: float) -> float:
    r"""$c = \sqrt{2 (\Delta_f + \sum \Gamma)/(L \sigma_f^2)}$, which minimises `minimum_bound` for
    $A = 1$.

    Returns:
        nan where $\Delta_f + \sum \Gamma$, $L$ or $\sigma_f^2$ is not above 0: no $c$ is the best.
    """
    if min(loss_gap + gamma_sum, variance, smoothness) <= 0:
        return float("nan")
    return float(np.sqrt(2 * (loss_gap + gamma_sum) / (smoothness * variance)))
