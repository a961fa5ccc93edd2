"""MEGA-I and MEGA-II: replay balanced by losses, or by losses and angles.

Guo et al., NeurIPS 2020, "Improved schemes for episodic memory-based lifelong learning".
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

import nccl_tf.step_sizes as step_sizes
from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.gradients import Products
from nccl_tf.learner.two_gradients import TwoGradientLearner
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.rows import mega as rows
from nccl_tf.step_sizes import SMALLEST_SQUARED_NORM

SMALLEST_SHARE = 1e-6
r"""At or below this share of its greatest value $\|u\|^2$ is rounding, and $u$ has no direction."""


def not_negative(losses: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """The stream loss and the memory loss, each NaN where it is below 0.

    A balance of losses has no meaning there, and a step with NaN is skipped and counted.
    """
    nan = tf.constant(float("nan"), losses["loss"].dtype)
    stream, memory = losses["loss"], losses["memory_loss"]
    return tf.where(stream < 0, nan, stream), tf.where(memory < 0, nan, memory)


def balance(
    stream_loss: tf.Tensor, memory_loss: tf.Tensor, epsilon: float
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""The weights of $g_J$ and of $f_I$: 1 and $l_{\mathrm{ref}}/l_t$ where $l_t > \varepsilon$,
    else 0 and 1.

    Where $l_{\mathrm{ref}}$ is 0 there is nothing to replay, and they are 1 and 0.

    Args:
        stream_loss: $l_t$, a scalar, 0 or more.
        memory_loss: $l_{\mathrm{ref}}$, a scalar, 0 or more.
        epsilon: Above 0.

    Example:
        >>> stream_weight, memory_weight = balance(tf.constant(0.5), tf.constant(2.0), 1e-5)
        >>> float(stream_weight), float(memory_weight)
        (1.0, 4.0)
    """
    fitted = (stream_loss <= epsilon) & (memory_loss > 0)
    one = tf.ones_like(stream_loss)
    ratio = tf.math.divide_no_nan(memory_loss, stream_loss)
    return tf.where(fitted, 0.0 * one, one), tf.where(fitted, one, ratio)


@keras.saving.register_keras_serializable(package="nccl_tf")
class MEGAI(TwoGradientLearner):
    r"""Replays more, the larger the memory loss is relative to the stream loss.

    $x^+ = x - \alpha (g_J + (l_{\mathrm{ref}}/l_t) f_I)$, with $l_t$ the mean loss on the stream
    batch and $l_{\mathrm{ref}}$ that on the memory batch, both before the step and without
    regularisation. Where $l_t \le \varepsilon$ the stream batch is fitted, and the step is replay
    alone: $x^+ = x - \alpha f_I$.

    The ratio has no bound: where the stream's loss is small and the memory's is not, the step on
    $f_I$ is long, as in the paper. The authors' code compares $l_{\mathrm{ref}}$ with
    $10^{-10}$, and not $l_t$; this is the paper's rule. A reading of the paper did not give its
    $\varepsilon$: the default only guards the division. The authors take both of the memory from
    256 examples, here of `memory_batch_size`, with 10 of which the ratio is some five times as
    noisy. Losses have to be 0 or more; a step whose loss is below 0 is skipped.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring, as the authors', or a reservoir.
        mega_epsilon: $\varepsilon$, in units of the loss.
        **kwargs: As for `TwoGradientLearner`.

    Raises:
        UserError: `mega_epsilon` is not above 0.

    Example:
        >>> import keras, nccl_tf
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> learner = nccl_tf.MEGAI(network, nccl_tf.RingMemory(5, [range(10)] * 20, (28, 28, 1)))
        >>> learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    """

    hyperparameters: ClassVar[Rows] = (rows.EPSILON,)
    projects = False

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        mega_epsilon: float = 1e-5,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.mega_epsilon = mega_epsilon

    def step_sizes(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        stream, memory = balance(*not_negative(losses), self.mega_epsilon)
        return step_sizes.joint(products.lambda_, alpha, memory, stream)


def rotation(
    products: Products, stream_loss: tf.Tensor, memory_loss: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""The weights of $g_J$ and of $f_I$ in $\|g_J\| u/\|u\|$, with
    $u = l_t g_J/\|g_J\| + l_{\mathrm{ref}} f_I/\|f_I\|$.

    They are 1 and 0 where $f_I$, $g_J$ or $u$ vanishes.

    Args:
        products: $\Lambda$, $\|f_I\|^2$ and $\|g_J\|^2$, scalars.
        stream_loss: $l_t$, a scalar, 0 or more.
        memory_loss: $l_{\mathrm{ref}}$, a scalar, 0 or more.

    Example:
        >>> lambda_, f_squared, g_squared = map(tf.constant, (0.0, 4.0, 1.0))
        >>> orthogonal = Products(lambda_, f_squared, g_squared)
        >>> stream_weight, memory_weight = rotation(orthogonal, tf.constant(3.0), tf.constant(4.0))
        >>> round(float(stream_weight), 4), round(float(memory_weight), 4)  # 3/5, 4/5 |g|/|f|
        (0.6, 0.4)
    """
    lambda_, memory_squared_norm, stream_squared_norm = products
    memory_norm, stream_norm = tf.sqrt(memory_squared_norm), tf.sqrt(stream_squared_norm)
    cosine = tf.math.divide_no_nan(lambda_, memory_norm * stream_norm)
    cosine = tf.clip_by_value(cosine, -1.0, 1.0)
    both = stream_loss**2 + memory_loss**2
    squared_length = both + 2.0 * stream_loss * memory_loss * cosine
    vanishes = (
        (memory_squared_norm <= SMALLEST_SQUARED_NORM)
        | (stream_squared_norm <= SMALLEST_SQUARED_NORM)
        | (squared_length <= SMALLEST_SHARE * both)
    )
    # The inner select keeps the quotients finite, so that no NaN reaches the outer ones.
    one = tf.ones_like(lambda_)
    length = tf.sqrt(tf.where(vanishes, one, squared_length))
    memory_length = tf.where(vanishes, one, memory_norm) * length
    return (
        tf.where(vanishes, one, stream_loss / length),
        tf.where(vanishes, 0.0 * one, memory_loss * stream_norm / memory_length),
    )


@keras.saving.register_keras_serializable(package="nccl_tf")
class MEGAII(TwoGradientLearner):
    r"""Turns the stream gradient towards the memory gradient, more where the memory has much loss.

    $x^+ = x - \alpha g_{\mathrm{mix}}$, where $g_{\mathrm{mix}}$ is as long as $g_J$ and lies
    between $g_J$ and $f_I$: with $\theta$ the angle between them, at the angle $\beta$ from $g_J$
    that maximises $l_t \cos(\beta) + l_{\mathrm{ref}} \cos(\theta - \beta)$ over $[0, \pi]$. $l_t$
    is the mean loss on the stream batch and $l_{\mathrm{ref}}$ that on the memory batch, both
    before the step and without regularisation.

    The maximum is at
    $\tan(\beta) = l_{\mathrm{ref}} \sin(\theta)/(l_t + l_{\mathrm{ref}} \cos(\theta))$, so that
    $g_{\mathrm{mix}} = \|g_J\| u/\|u\|$ with $u = l_t g_J/\|g_J\| + l_{\mathrm{ref}} f_I/\|f_I\|$.
    Where $u$, $f_I$ or $g_J$ vanishes, $g_{\mathrm{mix}}$ is $g_J$. The authors' code searches for
    $\beta$ by a few steps of gradient ascent and keeps it in $[0, \pi/2]$; this is the maximum over
    the paper's $[0, \pi]$, which is another one only where $\beta$ is above $\pi/2$: where
    $l_{\mathrm{ref}} \cos(\theta) < -l_t$. Their code also takes $g_J$ where
    $\|f_I\|^2 \|g_J\|^2 - \Lambda^2$ is at most $10^{-10}$, which happens late in a fitted task.

    As $g_{\mathrm{mix}}$ is as long as $g_J$, a stream batch that is fitted leaves nothing for
    replay. Losses have to be 0 or more; a step whose loss is below 0 is skipped.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring, as the authors', or a reservoir.
        **kwargs: As for `TwoGradientLearner`.

    Example:
        >>> import keras, nccl_tf
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> learner = nccl_tf.MEGAII(network, nccl_tf.RingMemory(5, [range(10)] * 20, (28, 28, 1)))
        >>> learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    """

    projects = False

    def step_sizes(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        stream, memory = rotation(products, *not_negative(losses))
        return step_sizes.joint(products.lambda_, alpha, memory, stream)
