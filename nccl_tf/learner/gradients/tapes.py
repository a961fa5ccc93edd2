"""The gradients of a replay step on gradient tapes: of one loss, or of two apart."""

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.gradients import Products, inner_product, squared_norm, weighted_sum
from nccl_tf.learner.step import Logits, Step, with_logs
from nccl_tf.learner.task_model import weighted_mean


class GradientPair(Protocol):
    """f_I and g_J at the same weights, formed or not.

    Attributes:
        losses: "loss", the mean loss on the stream batch without regularisation, and "memory_loss".
        logits: Of the stream batch.
    """

    losses: dict[str, tf.Tensor]
    logits: Logits

    @property
    def memory(self) -> list[tf.Tensor]:
        """f_I, a tensor per trainable variable."""

    @property
    def stream(self) -> list[tf.Tensor]:
        """g_J, a tensor per trainable variable."""

    def products(self) -> Products:
        """Lambda = <f_I, g_J>, |f_I|^2 and |g_J|^2."""

    def combined(self, memory_weight: tf.Tensor, stream_weight: tf.Tensor) -> Sequence[tf.Tensor]:
        """memory_weight f_I + stream_weight g_J, a tensor per trainable variable."""


class TapePair:
    """f_I and g_J, a tensor per trainable variable each.

    Args:
        memory: f_I.
        stream: g_J.
        losses: "loss", the mean loss on the stream batch without regularisation, and "memory_loss".
        logits: Of the stream batch.
    """

    def __init__(
        self,
        memory: list[tf.Tensor],
        stream: list[tf.Tensor],
        losses: dict[str, tf.Tensor],
        logits: Logits,
    ):
        self._memory, self._stream = memory, stream
        self.losses, self.logits = losses, logits

    @property
    def memory(self) -> list[tf.Tensor]:
        """f_I, a tensor per trainable variable."""
        return self._memory

    @property
    def stream(self) -> list[tf.Tensor]:
        """g_J, a tensor per trainable variable."""
        return self._stream

    def products(self) -> Products:
        """Lambda = <f_I, g_J>, |f_I|^2 and |g_J|^2."""
        return Products(
            inner_product(self.memory, self.stream),
            squared_norm(self.memory),
            squared_norm(self.stream),
        )

    def combined(self, memory_weight: tf.Tensor, stream_weight: tf.Tensor) -> list[tf.Tensor]:
        """memory_weight f_I + stream_weight g_J, a tensor per trainable variable."""
        return weighted_sum(memory_weight, self.memory, stream_weight, self.stream)


class TapeGradients:
    """Takes gradients on tapes, for any network.

    Args:
        learner: Gives network, masks and losses.
    """

    def __init__(self, learner: Any):
        self._learner = learner

    def joint(self, batch: Batch, *replays: Batch) -> Step:
        """The gradient of the learner's `replay_loss`, with the regularisation."""
        learner = self._learner
        with tf.GradientTape() as tape:
            logits = learner.replay_logits(batch, *replays)
            regularization = learner.regularization()
            loss, logs = with_logs("replay_loss", learner.replay_loss(logits, batch, *replays))
            scaled = learner.scaled(loss + regularization)
        return Step(learner.gradients(tape, scaled), logits.stream, logs)

    def pair(self, batch: Batch, replay: Batch) -> GradientPair:
        """f_I on the memory batch and g_J on the stream batch, the latter with regularisation."""
        learner = self._learner
        with tf.GradientTape() as memory_tape, tf.GradientTape() as stream_tape:
            logits = learner.replay_logits(batch, replay)
            regularization = learner.regularization()
            (memory_logits,) = logits.memory
            memory_losses = learner.memory_losses(memory_logits, replay)
            memory_loss = weighted_mean(memory_losses, replay.weights)
            stream_losses = learner.stream_losses(logits.stream, batch)
            stream_loss = weighted_mean(stream_losses, batch.weights)
            scaled_memory_loss = learner.scaled(memory_loss)
            scaled_stream_loss = learner.scaled(stream_loss + regularization)
        return TapePair(
            learner.gradients(memory_tape, scaled_memory_loss),
            learner.gradients(stream_tape, scaled_stream_loss),
            {"loss": stream_loss, "memory_loss": memory_loss},
            logits.stream,
        )
