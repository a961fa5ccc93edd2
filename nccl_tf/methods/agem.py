"""A-GEM (Chaudhry et al., ICLR 2019, "Efficient lifelong learning with A-GEM")."""

from collections.abc import Mapping

import keras
import tensorflow as tf

import nccl_tf.step_sizes as step_sizes
from nccl_tf.gradients import Products
from nccl_tf.learner.two_gradients import TwoGradientLearner


@keras.saving.register_keras_serializable(package="nccl_tf")
class AGEM(TwoGradientLearner):
    r"""Projects the stream gradient so that it does not point against the memory gradient.

    $\Lambda \ge 0$: $x^+ = x - \alpha g_J$. Otherwise
    $x^+ = x - \alpha (g_J - \Lambda/\|f_I\|^2 f_I)$, without the extra replay step that the paper's
    section 5.1 prints (erratum E3).

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.RingMemory(5, [[0, 1], [2, 3]], (28, 28, 1))
        >>> learner = nccl_tf.AGEM(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    def step_sizes(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        return step_sizes.agem(products.lambda_, products.memory_squared_norm, alpha)
