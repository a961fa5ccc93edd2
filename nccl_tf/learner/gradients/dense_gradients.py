"""The gradients of a replay step of a dense network, in one pass over the rows of all batches."""

from typing import Any

import tensorflow as tf

from nccl_tf.batch import Batch, concat_batches
from nccl_tf.gradients import Products
from nccl_tf.learner.gradients.dense_chain import DenseChain, FactoredGradient
from nccl_tf.learner.gradients.tapes import GradientPair, TapeGradients
from nccl_tf.learner.step import Logits, Step, with_logs
from nccl_tf.learner.task_model import weighted_mean


class RowPair:
    """f_I and g_J of a dense network by the rows of both batches; neither is formed.

    Args:
        chain: The network.
        rows: A and D of each layer, the memory's examples first.
        batches: The memory batch and the stream batch.
        losses: As in `TapePair`.
        logits: Of the stream batch.
    """

    def __init__(
        self,
        chain: DenseChain,
        rows: tuple[list[tf.Tensor], list[tf.Tensor]],
        batches: tuple[Batch, Batch],
        losses: dict[str, tf.Tensor],
        logits: Logits,
    ):
        self._chain, self._rows, self._batches = chain, rows, batches
        self.losses, self.logits = losses, logits
        self._split = tf.shape(batches[0].labels)[0]
        self._products: Products | None = None

    def products(self) -> Products:
        """Lambda = <f_I, g_J>, |f_I|^2 and |g_J|^2."""
        if self._products is None:
            self._products = self._chain.products(*self._rows, self._split)
        return self._products

    @property
    def memory(self) -> list[tf.Tensor]:
        """f_I, a tensor per trainable variable."""
        return self._part(slice(None, self._split))

    @property
    def stream(self) -> list[tf.Tensor]:
        """g_J, a tensor per trainable variable."""
        return self._part(slice(self._split, None))

    def _part(self, rows: slice) -> list[tf.Tensor]:
        a, d = ([part[rows] for part in parts] for parts in self._rows)
        return self._chain.factors(a, d).gradients()

    def combined(self, memory_weight: tf.Tensor, stream_weight: tf.Tensor) -> FactoredGradient:
        """memory_weight f_I + stream_weight g_J, a tensor per trainable variable."""
        weights = memory_weight, stream_weight
        row_weights = [
            tf.fill(tf.shape(batch.labels), weight)
            for batch, weight in zip(self._batches, weights, strict=True)
        ]
        factors = self._chain.factors(*self._rows, tf.concat(row_weights, axis=0))
        norms = self.products()[1:]
        return FactoredGradient(factors, tf.add_n([*norms, *weights]))


class DenseGradients(TapeGradients):
    """Takes gradients of a chain of dense layers in one pass over the rows of all batches.

    Args:
        learner: Gives masks and losses.
        chain: Its network.
    """

    def __init__(self, learner: Any, chain: DenseChain):
        super().__init__(learner)
        self._chain = chain

    @classmethod
    def from_learner(cls, learner: Any) -> "DenseGradients | None":
        """The gradients of a learner; None where its network is no chain of dense layers."""
        chain = DenseChain.from_network(learner.network)
        if chain is None or not chain.holds(learner.trainable_variables):
            return None
        return cls(learner, chain)

    def joint(self, batch: Batch, *replays: Batch) -> Step:
        learner = self._learner

        def loss_of(raw: tf.Tensor) -> tuple[tf.Tensor, Any]:
            logits = self._logits(raw, batch, *replays)
            loss, logs = with_logs("replay_loss", learner.replay_loss(logits, batch, *replays))
            return loss, (logits.stream, logs)

        inputs = concat_batches(*replays, batch).inputs
        *rows, (logits, logs) = self._chain.output_gradients(inputs, loss_of)
        return Step(FactoredGradient(self._chain.factors(*rows)), logits, logs)

    def pair(self, batch: Batch, replay: Batch) -> GradientPair:
        learner = self._learner

        def loss_of(raw: tf.Tensor) -> tuple[tf.Tensor, Any]:
            logits = self._logits(raw, batch, replay)
            memory_losses = learner.memory_losses(logits.memory[0], replay)
            memory_loss = weighted_mean(memory_losses, replay.weights)
            stream_losses = learner.stream_losses(logits.stream, batch)
            stream_loss = weighted_mean(stream_losses, batch.weights)
            # No example is in both batches, so each row's gradient is by its own batch's loss.
            losses = {"loss": stream_loss, "memory_loss": memory_loss}
            return memory_loss + stream_loss, (losses, logits.stream)

        inputs = concat_batches(replay, batch).inputs
        a, d, (losses, logits) = self._chain.output_gradients(inputs, loss_of)
        return RowPair(self._chain, (a, d), (replay, batch), losses, logits)

    def _logits(self, raw: tf.Tensor, batch: Batch, *replays: Batch) -> Any:
        sizes = [tf.shape(part.labels)[0] for part in (*replays, batch)]
        *memory, stream = tf.split(raw, sizes)
        return self._learner.masked_replay(stream, tuple(memory), batch, *replays)
