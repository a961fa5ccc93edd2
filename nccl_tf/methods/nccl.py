"""NCCL, nonconvex continual learning with adaptive step sizes (Han et al., UAI 2023)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

import nccl_tf.step_sizes as step_sizes
from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.gradients import Products
from nccl_tf.learner.step import GradientPair, Logs, ReplayLogits
from nccl_tf.learner.two_gradients import TwoGradientLearner
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.rows import nccl as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class NCCL(TwoGradientLearner):
    r"""Sets $\alpha_H$ and $\beta_H$ at every step to keep the forgetting term $\Gamma$ small
    (section 5.2).

    $\Lambda \le 0$ (interference): $\alpha_H = \alpha (1 - \Lambda/\|f_I\|^2)$, $\beta_H = \alpha$.
    $\Lambda > 0$ (transfer): $\alpha_H = \alpha$ and
    $\beta_H = \min(\alpha (1 - \delta), (1 - \alpha L) \Lambda/(L \|g_J\|^2))$, or with `beta_max`
    in place of $\alpha (1 - \delta)$ (section 6, table 3). $\alpha$ is the optimizer's learning
    rate.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring (NCCL + Ring) or a reservoir (NCCL + Reservoir).
        delta: Margin of $\beta_H$ below $\alpha$, in (0, 1).
        beta_max: Bound of $\beta_H$ in transfer, in units of the step size; None for the theory's.
        grad_scope: "all", $\Lambda$ and the norms over all trainable variables as one vector; or
            "layer", over each variable by itself, which then has step sizes of its own. Logged are
            then $\Lambda$, cosine, norms and $\Gamma$ over all variables, the means of $\alpha_H$
            and $\beta_H$ over variables, and the share of variables in interference.
        batch_norm_order: With `batch_norm="separate"`, whether the memory batch passes before the
            stream batch ("memory_first") or after it ("memory_last"), and so moves the moving
            averages last. The paper says neither. Regularizers of activities are those of the
            last pass.
        **kwargs: As for `TwoGradientLearner`, with `smoothness`, $L$; $\alpha L < 1$ is asked for.

    Raises:
        UserError: A number is out of range; from `compile` and `fit`, $\alpha L$ is 1 or more;
            from `compile`, `batch_norm_order` has no effect.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.RingMemory(5, [[0, 1], [2, 3]], (28, 28, 1))
        >>> learner = nccl_tf.NCCL(nccl_tf.networks.mlp((28, 28, 1), 10), memory, beta_max=0.1)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        delta: float = 0.001,
        beta_max: float | None = None,
        grad_scope: str = "all",
        batch_norm_order: str = "memory_first",
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.grad_scope = grad_scope
        self.batch_norm_order = batch_norm_order
        self.delta = delta
        self.beta_max = beta_max

    def step_sizes(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        smoothness = tf.constant(self.smoothness, alpha.dtype)
        return step_sizes.nccl(*products, alpha, smoothness, self.delta, self.beta_max)

    def combine(self, pair: GradientPair) -> tuple[Sequence[tf.Tensor], Logs]:
        return super().combine(pair if self.grad_scope == "all" else pair.by_variable())

    def replay_logits(self, batch: Batch, *replays: Batch) -> ReplayLogits:
        if self.batch_norm_order == "memory_first":
            return super().replay_logits(batch, *replays)
        stream, *memory = self.forward_all(self.raw_logits, batch, *replays)
        return self.masked_replay(stream, tuple(memory), batch, *replays)

    def compile(self, optimizer: Any = "sgd", *args: Any, **kwargs: Any) -> None:
        r"""As `Learner.compile`; refuses $\alpha L \ge 1$, for $\beta^* > 0$, and
        an order of batch norm where both batches pass with the same statistics."""
        if self.batch_norm_order == "memory_last" and self.batch_norm != "separate":
            raise UserError(
                f"received batch_norm_order='memory_last' with batch_norm={self.batch_norm!r}, "
                "where both batches pass with the same statistics: leave batch_norm_order out, or "
                "take batch_norm='separate'"
            )
        super().compile(optimizer, *args, **kwargs)
        self.check_rate()

    def check_rate(self) -> None:
        r"""Refuse $\alpha L \ge 1$, and a rate that is not finite."""
        super().check_rate()
        alpha = float(tf.convert_to_tensor(self.optimizer.learning_rate))
        if alpha * self.smoothness >= 1.0:
            raise UserError(
                f"received learning rate {alpha:g} with smoothness L = {self.smoothness:g}: "
                "NCCL needs alpha L below 1; lower the learning rate or the smoothness"
            )
