"""NCCL, nonconvex continual learning with adaptive step sizes (Han et al., UAI 2023)."""

from typing import Any, ClassVar, Unpack

import keras
import tensorflow as tf

from nccl_tf import step_sizes
from nccl_tf.arguments.hyperparameters import BETA_MAX, DELTA
from nccl_tf.errors import UserError
from nccl_tf.learner.arguments import ReplayGradientArguments
from nccl_tf.learner.two_gradients import ReplayGradientLearner
from nccl_tf.memories.base import Memory


@keras.saving.register_keras_serializable(package="nccl_tf")
class NCCL(ReplayGradientLearner):
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
        **kwargs: As for `ReplayGradientLearner`: with `smoothness`, $L$, which $\alpha L < 1$ is
            asked of where it is fixed.

    Raises:
        UserError: `smoothness`, `delta` or `beta_max` is out of range; from `compile` and `fit`,
            $\alpha L$ is 1 or more and $L$ fixed.
    """

    fast_paths: ClassVar[tuple[str, ...]] = ("deferred_logs", "prefetch", "dense")

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        delta: float = 0.001,
        beta_max: float | None = None,
        **kwargs: Unpack[ReplayGradientArguments],
    ):
        super().__init__(network, memory, **kwargs)
        self.delta = float(DELTA.check(delta))
        self.beta_max = None if beta_max is None else float(BETA_MAX.check(beta_max))

    def step_sizes(
        self,
        lambda_: tf.Tensor,
        memory_squared_norm: tf.Tensor,
        stream_squared_norm: tf.Tensor,
        alpha: tf.Tensor,
    ) -> step_sizes.StepSizes:
        return step_sizes.nccl(
            lambda_, memory_squared_norm, stream_squared_norm, alpha,
            self.smoothness_in_use(alpha), self.delta, self.beta_max,
        )  # fmt: skip

    def compile(self, optimizer: Any = "sgd", *args: Any, **kwargs: Any) -> None:
        r"""As `Learner.compile`; refuses a fixed $L$ with $\alpha L \ge 1$, for $\beta^* > 0$."""
        super().compile(optimizer, *args, **kwargs)
        self.check_rate()

    def check_rate(self) -> None:
        r"""Refuse $\alpha L \ge 1$ where $L$ is fixed."""
        alpha = float(tf.convert_to_tensor(self.optimizer.learning_rate))
        if self.estimate is None and alpha * self.smoothness >= 1.0:
            raise UserError(
                f"received learning rate {alpha:g} with smoothness L = {self.smoothness:g}: "
                "NCCL needs alpha L below 1; lower the learning rate or the smoothness"
            )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "delta": self.delta, "beta_max": self.beta_max}
