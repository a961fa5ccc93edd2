r"""The step sizes $\alpha_H$ and $\beta_H$ of the paper as pure functions of scalars.

Every update here has the form $x^+ = x - \alpha_H f_I - \beta_H g_J$ (paper, the gradient update),
with $f_I$ the gradient on the memory batch, $g_J$ the gradient on the stream batch and
$\Lambda = \langle f_I, g_J \rangle$. $\Lambda \le 0$ is interference, $\Lambda > 0$ is transfer.
All arguments and results are tensors of one floating dtype and shape, scalars or one value for each
of several learners; step sizes are in units of the learning rate.
"""

from typing import NamedTuple

import tensorflow as tf

SMALLEST_SQUARED_NORM = 1e-12
"""At or below this squared norm a gradient counts as zero, and nothing is divided by it."""


class StepSizes(NamedTuple):
    r"""Step sizes $\alpha_H$ (on $f_I$) and $\beta_H$ (on $g_J$), and whether $f_I$ and $g_J$
    interfere."""

    alpha_h: tf.Tensor
    beta_h: tf.Tensor
    interference: tf.Tensor


def optimal_beta(
    lambda_: tf.Tensor, stream_squared_norm: tf.Tensor, alpha: tf.Tensor, smoothness: tf.Tensor
) -> tf.Tensor:
    r"""$\beta^* = (1 - \alpha L) \Lambda / (L \|g_J\|^2)$, which minimises $\Gamma$ in transfer
    (section 5.2).

    Args:
        lambda_: $\langle f_I, g_J \rangle$.
        stream_squared_norm: $\|g_J\|^2$.
        alpha: Step size $\alpha$.
        smoothness: $L$.

    Returns:
        $\beta^*$, 0 where $\|g_J\|^2$ is not above `SMALLEST_SQUARED_NORM`.
    """
    # The inner select keeps the quotient finite, so that no NaN reaches the outer one.
    usable = stream_squared_norm > SMALLEST_SQUARED_NORM
    denominator = smoothness * tf.where(usable, stream_squared_norm, 1.0)
    return tf.where(usable, (1.0 - alpha * smoothness) * lambda_ / denominator, 0.0)


def projection_coefficient(lambda_: tf.Tensor, memory_squared_norm: tf.Tensor) -> tf.Tensor:
    r"""$\Lambda / \|f_I\|^2$, the coefficient of $g_J$ along $f_I$, or 0 where $f_I$ vanishes.

    Args:
        lambda_: $\langle f_I, g_J \rangle$.
        memory_squared_norm: $\|f_I\|^2$.
    """
    usable = memory_squared_norm > SMALLEST_SQUARED_NORM
    return tf.where(usable, lambda_ / tf.where(usable, memory_squared_norm, 1.0), 0.0)


def nccl(
    lambda_: tf.Tensor,
    memory_squared_norm: tf.Tensor,
    stream_squared_norm: tf.Tensor,
    alpha: tf.Tensor,
    smoothness: tf.Tensor,
    delta: float,
    beta_max: float | None = None,
) -> StepSizes:
    r"""NCCL's adaptive step sizes (Han et al., UAI 2023, section 5.2).

    Interference: $\alpha_H = \alpha (1 - \Lambda/\|f_I\|^2)$, $\beta_H = \alpha$.
    Transfer: $\alpha_H = \alpha$, $\beta_H = \min(\alpha (1 - \delta), \beta^*)$, or
    $\min(\beta_{\max}, \beta^*)$ in a clipped variant (section 6 and table 3). Where $f_I$ vanishes
    the step is plain SGD on the stream: $\alpha_H = \beta_H = \alpha$.

    Args:
        lambda_: $\langle f_I, g_J \rangle$.
        memory_squared_norm: $\|f_I\|^2$.
        stream_squared_norm: $\|g_J\|^2$.
        alpha: Step size $\alpha$.
        smoothness: $L$; $\beta^*$ is clipped to 0 where $\alpha L$ exceeds 1.
        delta: Margin that keeps $\beta_H$ below $\alpha$ in transfer.
        beta_max: Upper bound of $\beta_H$ in transfer, or None for the theory's bound.

    Example:

    ```python
    lambda_, f_squared, g_squared, alpha, smoothness = map(tf.constant, (-1.0, 4.0, 9.0, 0.1, 1.0))
    sizes = nccl_tf.step_sizes.nccl(lambda_, f_squared, g_squared, alpha, smoothness, delta=0.01)
    sizes.alpha_h, sizes.beta_h  # interference: 0.1 (1 + 1/4) = 0.125 and 0.1
    ```
    """
    memory_vanishes = memory_squared_norm <= SMALLEST_SQUARED_NORM
    interference = lambda_ <= 0.0
    bound = alpha * (1.0 - delta) if beta_max is None else tf.constant(beta_max, alpha.dtype)
    beta_star = optimal_beta(lambda_, stream_squared_norm, alpha, smoothness)
    transfer_beta = tf.clip_by_value(beta_star, 0.0, bound)
    projected_alpha = alpha * (1.0 - projection_coefficient(lambda_, memory_squared_norm))
    return StepSizes(
        alpha_h=tf.where(interference, projected_alpha, alpha),
        beta_h=tf.where(tf.logical_or(interference, memory_vanishes), alpha, transfer_beta),
        interference=interference,
    )


def agem(lambda_: tf.Tensor, memory_squared_norm: tf.Tensor, alpha: tf.Tensor) -> StepSizes:
    r"""A-GEM's projection in the form of two step sizes (Chaudhry et al., ICLR 2019, eq. 11).

    Interference $(\Lambda < 0)$: $\alpha_H = -\alpha \Lambda/\|f_I\|^2$, $\beta_H = \alpha$; else
    $\alpha_H = 0$, $\beta_H = \alpha$. The paper (section 5.1) prints
    $\alpha (1 - \Lambda/\|f_I\|^2)$, whose "1 -" is the extra replay step of NCCL and not part of
    A-GEM (erratum E3).

    Args:
        lambda_: $\langle f_I, g_J \rangle$.
        memory_squared_norm: $\|f_I\|^2$.
        alpha: Learning rate.
    """
    interference = lambda_ < 0.0
    projected_alpha = -alpha * projection_coefficient(lambda_, memory_squared_norm)
    return StepSizes(
        alpha_h=tf.where(interference, projected_alpha, 0.0),
        beta_h=tf.identity(alpha),
        interference=interference,
    )


def joint(
    lambda_: tf.Tensor, alpha: tf.Tensor, memory_weight: tf.Tensor, stream_weight: tf.Tensor
) -> StepSizes:
    r"""The joint step of ER in the form of two step sizes: $\alpha_H = \alpha w_I$,
    $\beta_H = \alpha w_J$.

    The mean loss over the union of both batches has $w_I = b_I/(b_I + b_J)$ and
    $w_J = b_J/(b_I + b_J)$, with b the numbers of examples; the sum of the two means has
    $w_I = w_J = 1$. A step on the stream batch only has $w_I = 0$ and $w_J = 1$.

    Args:
        lambda_: $\langle f_I, g_J \rangle$, which only determines `interference`.
        alpha: Learning rate.
        memory_weight: $w_I$.
        stream_weight: $w_J$.
    """
    return StepSizes(alpha * memory_weight, alpha * stream_weight, lambda_ <= 0.0)
