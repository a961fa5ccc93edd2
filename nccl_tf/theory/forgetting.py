r"""The catastrophic forgetting term $\Gamma$ of one step (paper, section 4.2), in two forms."""

import tensorflow as tf

from nccl_tf.step_sizes import optimal_beta, projection_coefficient


def gamma(
    alpha_h: tf.Tensor,
    beta_h: tf.Tensor,
    lambda_: tf.Tensor,
    stream_squared_norm: tf.Tensor,
    smoothness: tf.Tensor,
) -> tf.Tensor:
    r"""The raw form, $\Gamma = \beta_H^2 L/2 \|g_J\|^2 - \beta_H (1 - \alpha_H L) \Lambda$.

    Args:
        alpha_h: Step size on $f_I$.
        beta_h: Step size on $g_J$.
        lambda_: $\langle f_I, g_J \rangle$.
        stream_squared_norm: $\|g_J\|^2$.
        smoothness: $L$.

    Returns:
        A scalar, in units of the loss.
    """
    quadratic = 0.5 * smoothness * beta_h * beta_h * stream_squared_norm
    return quadratic - beta_h * (1.0 - alpha_h * smoothness) * lambda_


def gamma_surrogate(
    alpha: tf.Tensor,
    lambda_: tf.Tensor,
    memory_squared_norm: tf.Tensor,
    stream_squared_norm: tf.Tensor,
    smoothness: tf.Tensor,
) -> tf.Tensor:
    r"""$\Gamma$ of a projected step, $\alpha^2 L/2 (\|g_J\|^2 - \Lambda^2/\|f_I\|^2)$ (paper,
    appendix D).

    It writes the step as $(\alpha, \alpha)$ on $f_I$ and on the projected gradient
    $g_J - (\Lambda/\|f_I\|^2) f_I$, which is orthogonal to $f_I$. It is never negative. For NCCL's
    $\alpha_H$ and $\beta_H$ in interference, and with $e_t = 0$, it satisfies $-(\alpha_H - L
    \alpha_H^2/2)\|f_I\|^2 + \Gamma = -(\alpha - L \alpha^2/2)\|f_I\|^2 + \text{surrogate}$.

    Args:
        alpha: Step size $\alpha$.
        lambda_: $\langle f_I, g_J \rangle$.
        memory_squared_norm: $\|f_I\|^2$.
        stream_squared_norm: $\|g_J\|^2$.
        smoothness: $L$.

    Returns:
        A scalar, in units of the loss.
    """
    along_memory = projection_coefficient(lambda_, memory_squared_norm) * lambda_
    return 0.5 * smoothness * alpha * alpha * (stream_squared_norm - along_memory)


def optimal_gamma(
    lambda_: tf.Tensor, stream_squared_norm: tf.Tensor, alpha: tf.Tensor, smoothness: tf.Tensor
) -> tf.Tensor:
    r"""$\Gamma^* = -(1 - \alpha L)^2 \Lambda^2/(2 L \|g_J\|^2)$, the minimum of $\Gamma$ over
    $\beta_H$.

    For $\alpha_H = \alpha$ it is attained at $\beta^*$ (`step_sizes.optimal_beta`; section 5.2).
    The paper prints the numerator as $(1 - \alpha L) \Lambda$, unsquared (E1), and in the appendix
    the derivative of $\Gamma$ by $\beta$ with $\|g_J\|$ for $\|g_J\|^2$ (E2).

    Args:
        lambda_: $\langle f_I, g_J \rangle$.
        stream_squared_norm: $\|g_J\|^2$.
        alpha: $\alpha_H$.
        smoothness: $L$.

    Returns:
        A scalar, in units of the loss; 0 where $\|g_J\|^2$ vanishes.
    """
    best = optimal_beta(lambda_, stream_squared_norm, alpha, smoothness)
    return -0.5 * best * (1.0 - alpha * smoothness) * lambda_
