"""The base of the methods that weigh a memory gradient against a stream gradient."""

import logging
from typing import Any, ClassVar, NamedTuple

import keras
import tensorflow as tf

from nccl_tf import step_sizes
from nccl_tf.batch import Batch, joined
from nccl_tf.errors import UserError
from nccl_tf.gradients import Gradients, Products, inner_product, squared_norm, weighted_sum
from nccl_tf.hyperparameters import (
    GRADIENTS,
    SMOOTHNESS,
    SMOOTHNESS_MODE,
)
from nccl_tf.learner import replicas
from nccl_tf.learner.dense_gradients import DenseChain, RowDirection
from nccl_tf.learner.functional import current_weights
from nccl_tf.learner.learner import Step
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.smoothness import SmoothnessEstimate
from nccl_tf.theory import forgetting


class BothGradients(NamedTuple):
    """The gradients on both batches and what the passes gave on the way.

    Attributes:
        memory: f_I, a tensor per trainable variable.
        stream: g_J, likewise.
        memory_loss: Mean loss on the memory batch, a scalar.
        stream_loss: Mean loss on the stream batch, without regularisation.
        logits: [n, classes], of the stream batch, masked.
    """

    memory: list[tf.Tensor]
    stream: list[tf.Tensor]
    memory_loss: tf.Tensor
    stream_loss: tf.Tensor
    logits: tf.Tensor


class ReplayGradientLearner(ReplayLearner):
    """Takes f_I on the memory batch and g_J on the stream batch at the same weights.

    The update is x+ = x - alpha_H f_I - beta_H g_J. The optimizer receives
    (alpha_H f_I + beta_H g_J)/alpha, so that with `keras.optimizers.SGD(alpha)` the update is
    exactly the paper's; alpha is read from the optimizer at every step. A method overrides
    `step_sizes`, or the whole of `combine`.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: The replay memory.
        smoothness: L of the paper, in 1/step size; it enters Gamma, and beta* of NCCL.
        smoothness_mode: "fixed", or "secant" or "power" for an estimate of L that begins at
            `smoothness` and is kept at or below 0.9/alpha; `SmoothnessEstimate` says how. Each step
            then measures `smoothness`, the L that it used, and `smoothness_estimate` where it took
            one.
        gradients: "auto" weighs both gradients of a network of dense layers in one pass, without
            forming them, and takes two tapes for every other network; "two_tapes" always does.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: `smoothness`, `smoothness_mode` or `gradients` is out of range.
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
    on_replicas = True

    def __init__(
        self,
        network: keras.Model,
        memory: Any,
        *,
        smoothness: float = 1.0,
        smoothness_mode: str = "fixed",
        gradients: str = "auto",
        **kwargs: Any,
    ):
        self.smoothness = float(SMOOTHNESS.check(smoothness))
        self.smoothness_mode = SMOOTHNESS_MODE.check(smoothness_mode)
        if smoothness_mode != "fixed" and replicas.count() is not None:
            raise UserError(
                f"smoothness_mode={smoothness_mode!r} runs on one replica only: take fixed under a "
                "tf.distribute strategy"
            )
        if smoothness_mode != "fixed":
            more = ("smoothness", "smoothness_estimate")
            self.quantities = (*self.quantities, *more)  # type: ignore[misc]
        super().__init__(network, memory, **kwargs)
        self.gradient_path = GRADIENTS.check(gradients)
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
        """alpha_H and beta_H from Lambda, |f_I|^2, |g_J|^2 and alpha (scalars, or vectors)."""
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
        found = Products(
            inner_product(memory_gradients, stream_gradients),
            squared_norm(memory_gradients),
            squared_norm(stream_gradients),
        )
        (memory_weight, stream_weight), measured = self._weigh(found)
        direction = weighted_sum(memory_weight, memory_gradients, stream_weight, stream_gradients)
        return direction, measured

    def _weigh(self, found: Products) -> tuple[tuple[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]:
        """alpha_H/alpha and beta_H/alpha, and the quantities measured on the way."""
        lambda_, memory_squared_norm, stream_squared_norm = found
        alpha = tf.cast(self.optimizer.learning_rate, lambda_.dtype) + tf.zeros_like(lambda_)
        sizes = self.step_sizes(lambda_, memory_squared_norm, stream_squared_norm, alpha)
        smoothness = self.smoothness_in_use(alpha)
        raw = forgetting.gamma(
            sizes.alpha_h, sizes.beta_h, lambda_, stream_squared_norm, smoothness
        )
        projected = forgetting.gamma_surrogate(
            alpha, lambda_, memory_squared_norm, stream_squared_norm, smoothness
        )
        norms = tf.sqrt(memory_squared_norm), tf.sqrt(stream_squared_norm)
        estimated = {} if self.estimate is None else {"smoothness": smoothness}
        return (sizes.alpha_h / alpha, sizes.beta_h / alpha), {
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
        if self._chain is not None:
            return self._learn_fused(self._chain, batch, replay)
        found = self.both_gradients(batch, replay)
        direction, measured = self.combine(found.memory, found.stream)
        losses = {"loss": found.stream_loss, "memory_loss": found.memory_loss}
        return self.step(direction, found.logits, {**losses, **measured})

    def both_gradients(self, batch: Batch, replay: Batch) -> BothGradients:
        """f_I and g_J at the same weights, with what the passes gave on the way."""
        with tf.GradientTape() as memory_tape, tf.GradientTape() as stream_tape:
            memory_logits, logits = self.both_logits(batch, replay)
            memory_loss = self.mean_loss(memory_logits, replay)
            stream_loss = self.mean_loss(logits, batch)
            scaled_memory_loss = self.scaled(memory_loss)
            scaled_stream_loss = self.scaled(stream_loss + self.regularization())
        return BothGradients(
            self.gradients(memory_tape, scaled_memory_loss),
            self.gradients(stream_tape, scaled_stream_loss),
            memory_loss,
            stream_loss,
            logits,
        )

    def learn_on_replicas(self, *batches: Batch) -> Step:
        """f_I and g_J are those of the whole batches before Lambda and the norms are taken."""
        batch, replay = batches
        (of_stream, of_memory), _ = replicas.shares(batch, replay)
        found = tf.cond(
            tf.reduce_any(replay.weights > 0),
            lambda: self.both_gradients(batch, replay),
            lambda: self._stream_alone(batch),
        )
        losses = of_memory * found.memory_loss, of_stream * found.stream_loss
        count = len(found.stream)
        own = replicas.weighted(of_memory, found.memory), replicas.weighted(of_stream, found.stream)
        both = replicas.summed([*own[0], *own[1], *losses, of_memory])
        memory_loss, loss, replayed = both[-3:]
        direction, measured = self.combine(both[:count], both[count:-3])
        step = self.step(
            direction, found.logits, {"loss": loss, "memory_loss": memory_loss, **measured}
        )
        # Where the memory is empty f_I is 0, and only the loss means something.
        alone = tf.constant([float(name == "loss") for name in self.quantities])
        return step._replace(measured=tf.where(replayed > 0, step.measured, alone))

    def _stream_alone(self, batch: Batch) -> BothGradients:
        step = self.learn_stream(batch)
        zeros = [tf.zeros_like(gradient) for gradient in step.direction]
        loss = tf.cast(step.values[0], step.logits.dtype)
        return BothGradients(zeros, step.direction, tf.zeros_like(loss), loss, step.logits)

    def _learn_fused(self, chain: DenseChain, batch: Batch, replay: Batch) -> Step:
        """The same step of a dense network in one pass, without forming either gradient."""
        rows = tf.shape(replay.labels)[-1]

        def loss_of(logits: tf.Tensor) -> tuple[tf.Tensor, Any]:
            stream_logits = self.masked(logits[..., rows:, :], batch)
            memory_loss = self.mean_loss(self.masked(logits[..., :rows, :], replay), replay)
            stream_loss = self.mean_loss(stream_logits, batch)
            # No example is in both batches, so each row's slope is by its own batch's loss.
            return memory_loss + stream_loss, (stream_logits, memory_loss, stream_loss)

        inputs = joined(replay, batch).inputs
        inputs, slopes, (logits, memory_loss, stream_loss) = chain.slopes(inputs, loss_of)
        found = chain.products(inputs, slopes, rows)
        weights, measured = self._weigh(found)
        row_weights = [
            tf.broadcast_to(weight[..., None], tf.shape(part.labels))
            for part, weight in zip((replay, batch), weights, strict=True)
        ]
        factors = chain.factors(inputs, slopes, tf.concat(row_weights, axis=-1))
        direction = RowDirection(factors, tf.add_n([*found[1:], *weights]))
        losses = {"loss": stream_loss, "memory_loss": memory_loss}
        return self.step(direction, logits, {**losses, **measured})

    def _one_step(self, *batches: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        if self.estimate is None or len(batches) == 1:
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

    def _fused_chain(self) -> DenseChain | None:
        own_rule = type(self).combine is not ReplayGradientLearner.combine
        if self.gradient_path == "two_tapes" or own_rule:
            return None
        return super()._fused_chain()

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "smoothness": self.smoothness,
            "smoothness_mode": self.smoothness_mode,
            "gradients": self.gradient_path,
        }
