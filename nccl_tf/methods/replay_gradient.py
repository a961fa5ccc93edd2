"""The base of the methods that weigh a memory gradient against a stream gradient."""

import logging
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf import gradients, step_sizes
from nccl_tf.batch import Batch
from nccl_tf.gradients import Gradients
from nccl_tf.methods.hyperparameters import SMOOTHNESS, SMOOTHNESS_MODE
from nccl_tf.methods.learner import Step
from nccl_tf.methods.replay import ReplayLearner
from nccl_tf.methods.smoothness import SmoothnessEstimate
from nccl_tf.methods.virtual_step import current_weights
from nccl_tf.theory import forgetting


class ReplayGradientLearner(ReplayLearner):
    """Takes f_I on the memory batch and g_J on the stream batch at the same weights.

    The update is x+ = x - alpha_H f_I - beta_H g_J. The optimizer receives
    (alpha_H f_I + beta_H g_J)/alpha, so that with `keras.optimizers.SGD(alpha)` the update is
    exactly the paper's; alpha is read from the optimizer at every step. A method overrides
    `step_sizes`, or the whole of `combine`.

    Args:
        network: Any Keras model from images to one logit per class.
        memory: The replay memory.
        smoothness: L of the paper, in 1/step size; it enters Gamma, and beta* of NCCL.
        smoothness_mode: "fixed", or "secant" or "power" for an estimate of L that begins at
            `smoothness` and is kept at or below 0.9/alpha; `SmoothnessEstimate` says how. Each step
            then measures `smoothness`, the L that it used, and `smoothness_estimate` where it took
            one.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: `smoothness` or `smoothness_mode` is out of range.
    """

    quantities: ClassVar[tuple[str, ...]] = (
        "loss",
        "memory_loss",
        "lambda",
        "cosine",
        "memory_gradient_norm",
        "stream_gradient_norm",
        "alpha_h",
        "beta_h",
        "interference",
        "gamma_raw",
        "gamma_surrogate",
    )
    cumulative: ClassVar[tuple[str, ...]] = ("gamma_raw", "gamma_surrogate")

    def __init__(
        self,
        network: keras.Model,
        memory: Any,
        *,
        smoothness: float = SMOOTHNESS.default,
        smoothness_mode: str = SMOOTHNESS_MODE.default,
        **kwargs: Any,
    ):
        self.smoothness = float(SMOOTHNESS.check(smoothness))
        self.smoothness_mode = SMOOTHNESS_MODE.check(smoothness_mode)
        if smoothness_mode != "fixed":
            self.quantities = (*self.quantities, "smoothness", "smoothness_estimate")
        super().__init__(network, memory, **kwargs)
        self.estimate = None
        if smoothness_mode != "fixed":
            self.estimate = SmoothnessEstimate(
                smoothness_mode, self.smoothness, self.seed, self._state
            )

    def smoothness_in_use(self, alpha: tf.Tensor) -> tf.Tensor:
        """L in the coming step, a scalar in the dtype of alpha."""
        if self.estimate is None:
            return tf.constant(self.smoothness, alpha.dtype)
        return self.estimate.in_use(alpha)

    def step_sizes(
        self,
        lambda_: tf.Tensor,
        memory_squared_norm: tf.Tensor,
        stream_squared_norm: tf.Tensor,
        alpha: tf.Tensor,
    ) -> step_sizes.StepSizes:
        """alpha_H and beta_H from Lambda, |f_I|^2, |g_J|^2 and alpha (scalars)."""
        raise NotImplementedError

    def combine(
        self, memory_gradients: Gradients, stream_gradients: Gradients
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """What the optimizer receives, and the quantities measured on the way.

        Args:
            memory_gradients: f_I, a tensor per trainable variable.
            stream_gradients: g_J, likewise.

        Returns:
            (alpha_H f_I + beta_H g_J)/alpha, a tensor per variable, and scalars by the names in
            `quantities`.
        """
        lambda_ = gradients.inner_product(memory_gradients, stream_gradients)
        memory_squared_norm = gradients.squared_norm(memory_gradients)
        stream_squared_norm = gradients.squared_norm(stream_gradients)
        alpha = tf.cast(self.optimizer.learning_rate, lambda_.dtype)
        sizes = self.step_sizes(lambda_, memory_squared_norm, stream_squared_norm, alpha)
        direction = gradients.weighted_sum(
            sizes.alpha_h / alpha, memory_gradients, sizes.beta_h / alpha, stream_gradients
        )
        smoothness = self.smoothness_in_use(alpha)
        raw = forgetting.gamma(
            sizes.alpha_h, sizes.beta_h, lambda_, stream_squared_norm, smoothness
        )
        projected = forgetting.gamma_surrogate(
            alpha, lambda_, memory_squared_norm, stream_squared_norm, smoothness
        )
        norms = tf.sqrt(memory_squared_norm), tf.sqrt(stream_squared_norm)
        estimated = {} if self.estimate is None else {"smoothness": smoothness}
        return direction, {
            "lambda": lambda_,
            "cosine": tf.math.divide_no_nan(lambda_, norms[0] * norms[1]),
            "memory_gradient_norm": norms[0],
            "stream_gradient_norm": norms[1],
            "alpha_h": sizes.alpha_h,
            "beta_h": sizes.beta_h,
            "interference": tf.cast(sizes.interference, lambda_.dtype),
            "gamma_raw": raw,
            # The surrogate books projected steps; an unprojected step has its raw Gamma.
            "gamma_surrogate": tf.where(sizes.interference, projected, raw),
            **estimated,
        }

    def learn_both(self, batch: Batch, replay: Batch) -> Step:
        with tf.GradientTape() as memory_tape, tf.GradientTape() as stream_tape:
            memory_logits, logits = self.both_logits(batch, replay)
            memory_loss = self.mean_loss(memory_logits, replay)
            stream_loss = self.mean_loss(logits, batch)
            scaled_memory_loss = self.scaled(memory_loss)
            scaled_stream_loss = self.scaled(stream_loss + self.regularization())
        direction, measured = self.combine(
            self.gradients(memory_tape, scaled_memory_loss),
            self.gradients(stream_tape, scaled_stream_loss),
        )
        return self.step(
            direction, logits, {"loss": stream_loss, "memory_loss": memory_loss, **measured}
        )

    def _one_step(self, *batches: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        if self.estimate is None:
            return super()._one_step(*batches)
        before = [tf.identity(w) for w in current_weights(self)]
        logits, values, measured = super()._one_step(*batches)
        fresh = self.estimate.refresh(self, batches[1], before)
        known = tf.math.is_finite(fresh)
        is_it = tf.constant([name == "smoothness_estimate" for name in self.quantities])
        values = tf.where(is_it & known, fresh, values)
        return logits, values, tf.where(is_it & known, 1.0, measured)

    def compile(self, optimizer: Any = "sgd", **kwargs: Any) -> None:
        """As `Learner.compile`; warns once where the optimizer is not plain SGD."""
        super().compile(optimizer, **kwargs)
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        if type(inner) is not keras.optimizers.SGD or inner.momentum:
            logging.getLogger("nccl_tf").warning(
                "%s transforms the step (alpha_H f_I + beta_H g_J)/alpha that it receives: the "
                "paper's theory holds for keras.optimizers.SGD without momentum",
                type(inner).__name__,
            )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "smoothness": self.smoothness,
            "smoothness_mode": self.smoothness_mode,
        }
