"""MEGA-I: replay balanced by both losses (Guo et al., NeurIPS 2020).

"Improved schemes for episodic memory-based lifelong learning"; MEGA-II is another class.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import keras
import tensorflow as tf

import nccl_tf.step_sizes as step_sizes
from nccl_tf.arguments.hyperparameters import MEGA_EPSILON
from nccl_tf.gradients import Products
from nccl_tf.learner.arguments import ReplayGradientArguments
from nccl_tf.learner.two_gradients import ReplayGradientLearner
from nccl_tf.memories.base import Memory


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
class MEGAI(ReplayGradientLearner):
    r"""Replays the more, the larger the memory's loss is beside the stream's.

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
        **kwargs: As for `ReplayGradientLearner`.

    Raises:
        UserError: `mega_epsilon` is not above 0.

    Example:
        >>> import keras, nccl_tf
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> learner = nccl_tf.MEGAI(network, nccl_tf.RingMemory(5, [range(10)] * 20, (28, 28, 1)))
        >>> learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    """

    fast_paths: ClassVar[tuple[str, ...]] = ("deferred_logs", "prefetch", "dense")
    projects = False

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        mega_epsilon: float = 1e-5,
        **kwargs: Unpack[ReplayGradientArguments],
    ):
        super().__init__(network, memory, **kwargs)
        self.mega_epsilon = float(MEGA_EPSILON.check(mega_epsilon))

    def step_sizes_by_loss(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        stream, memory = balance(*not_negative(losses), self.mega_epsilon)
        return step_sizes.joint(products.lambda_, alpha, memory, stream)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mega_epsilon": self.mega_epsilon}
