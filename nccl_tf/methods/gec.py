"""GEC: replay as far as a constraint on the memory's loss asks for it (Lai et al., NeurIPS 2025).

"Gradient-guided epsilon constraint method for online continual learning".
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

import nccl_tf.step_sizes as step_sizes
from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.gradients import Products
from nccl_tf.learner.step import Step
from nccl_tf.learner.two_gradients import TwoGradientLearner
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.rows import gec as rows

DELTA = 1e-6
r"""Added to $\|f_I\|^2$ in the denominator (the paper's table 8)."""
MARGIN = 0.05
"""How far above the mean training loss of the ended tasks the tolerance is (appendix E.2)."""


def multiplier(products: Products, least: tf.Tensor) -> tf.Tensor:
    r"""$\lambda = \max(0, (\phi - \Lambda)/(\|f_I\|^2 + \delta))$.

    $g_J + \lambda f_I$ is the vector nearest to $g_J$ whose inner product with $f_I$ is $\phi$ or
    more, but for $\delta$.

    Args:
        products: $\Lambda$, $\|f_I\|^2$ and $\|g_J\|^2$, scalars.
        least: $\phi$, a scalar.

    Example:
        >>> products = Products(tf.constant(-1.0), tf.constant(2.0), tf.constant(9.0))
        >>> round(float(multiplier(products, tf.constant(3.0))), 3)  # (3 + 1)/2
        2.0
    """
    needed = (least - products.lambda_) / (products.memory_squared_norm + DELTA)
    return tf.maximum(needed, tf.zeros_like(needed))


@keras.saving.register_keras_serializable(package="nccl_tf")
class GEC(TwoGradientLearner):
    r"""Adds as much of the memory gradient to the stream's as keeps the memory's loss tolerable.

    $x^+ = x - \alpha v$, where $v$ minimises $\|v - g_J\|^2/2$ subject to
    $\langle f_I, v \rangle \ge \phi$ (the paper's quadratic program, eq. 10), with
    $\phi = a (l_m - \varepsilon)$, $l_m$ the mean loss on the memory batch before the step,
    $\varepsilon$ the tolerance and $a$ the strength of the barrier. The solution is
    $v = g_J + \lambda f_I$ with $\lambda = \max(0, (\phi - \Lambda)/(\|f_I\|^2 + \delta))$ and
    $\delta = 10^{-6}$. So a memory loss above the tolerance is lowered, and one below it may rise
    at a bounded rate. With $l_m = \varepsilon$ the step is A-GEM's. $\lambda$ has no bound where
    $f_I$ is small and $l_m$ above $\varepsilon$.

    This is the form of the paper's section 5.1, with one constraint on the whole memory batch. The
    text contradicts itself: around its eq. 9, in appendix A.2 and in algorithm 1 the memory's loss
    before the last update is subtracted too, so that $\phi$ is near $-a \varepsilon$ in every step;
    in section 5.1 it is not, and a tolerance that is taken at the ends of tasks (appendix E.2) fits
    that alone. The experiments' version is left out, as the text does not define all of it: a
    constraint for each past task, with a solver of the quadratic program; gradients taken after an
    inner look-ahead step; clipped gradients; the first five steps of a task as experience replay.

    The tolerance is our choice. The experiments record "the average training loss" at each task's
    end and allow 5 % more (appendix E.2), without saying of which average. Here $\varepsilon$ is 5
    % more than the mean loss of the stream's examples of all ended tasks, each taken when its batch
    came. Until a task has ended there is none, and a step is the stream's alone; so a stream
    without ends of tasks needs `gec_tolerance`. With `dark` or `stream_mask` the memory's loss is
    of another kind than the stream's, from which that tolerance comes: `gec_tolerance` sets one.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A reservoir, as the authors', or a ring.
        gec_alpha: $a$, in 1/step size; $\alpha$ in the paper.
        gec_tolerance: $\varepsilon$, in units of the loss, the same in all steps; None for the one
            of the ended tasks.
        **kwargs: As for `TwoGradientLearner`.

    Raises:
        UserError: `gec_alpha` is not above 0, or `gec_tolerance` is below 0.

    Example:
        >>> import keras, nccl_tf
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> learner = nccl_tf.GEC(network, nccl_tf.ReservoirMemory(200, (28, 28, 1)))
        >>> learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    projects = False

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        gec_alpha: float = 0.5,
        gec_tolerance: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.gec_alpha = gec_alpha
        self.gec_tolerance = gec_tolerance
        self.tolerance = self.state("tolerance", (), "float32", float("inf"))
        self.mean_loss = self.state("mean_loss", (), "float32")
        self.examples = self.state("examples", (), "float32")

    def step_sizes(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        if self.gec_tolerance is None:
            tolerance = tf.cast(self.tolerance.value, alpha.dtype)
        else:
            tolerance = tf.constant(self.gec_tolerance, alpha.dtype)
        weight = multiplier(products, self.gec_alpha * (losses["memory_loss"] - tolerance))
        return step_sizes.joint(products.lambda_, alpha, weight, tf.ones_like(weight))

    def after_step(self, batch: Batch, step: Step) -> None:
        super().after_step(batch, step)
        # 0 for padding and in a skipped step, whose loss is NaN.
        fresh = tf.reduce_sum(batch.weights)
        examples, mean = self.examples.value + fresh, self.mean_loss.value
        change = (step.logs["loss"] - mean) * tf.math.divide_no_nan(fresh, examples)
        self.mean_loss.assign(mean + tf.where(fresh > 0, change, 0.0))
        self.examples.assign(examples)

    def on_task_end(self, task_id: int) -> None:
        mean = self.mean_loss.value
        some = self.examples.value > 0
        self.tolerance.assign(tf.where(some, mean + MARGIN * tf.abs(mean), self.tolerance.value))
