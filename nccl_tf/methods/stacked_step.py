"""One step of several learners of one method at once, each on its own batch and memory."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.ring import RingMemory
from nccl_tf.memories.stacked import draw_all_ahead, read_all, rows_of_all, write_all
from nccl_tf.methods.learner import SKIPS_IN_A_ROW, Learner, Step
from nccl_tf.methods.outcome import Outcome
from nccl_tf.methods.replay import ReplayLearner
from nccl_tf.networks.dense_chain import RowDirection
from nccl_tf.networks.stacked_chain import StackedChain


class Skips(NamedTuple):
    """The learners' counters, as they go from step to step.

    Attributes:
        skipped: int32 [S].
        in_a_row: int32 [S].
    """

    skipped: tf.Tensor
    in_a_row: tf.Tensor


class StackedStep:
    """The step of S learners: draws and memories are each learner's own, the arithmetic is one.

    What is computed is what the method's own `learn_both` says, on batches with a leading dimension
    S and on a chain whose weights have one.

    Args:
        learners: Compiled learners that `refusal` lets pass.
        chain: Their networks.
    """

    def __init__(self, learners: Sequence[Learner], chain: StackedChain):
        self._learners, self._chain = learners, chain
        self._memories = [one.memory for one in learners if isinstance(one, ReplayLearner)]
        first = learners[0]
        # A learner of the method for the arithmetic alone: its logits are masked by the heads of
        # all learners, one learner's after the other's.
        self._heads = 0 if first.heads is None else len(first.heads.classes)
        heads = [head for one in learners if one.heads for head in one.heads.classes]
        parts = {
            name: getattr(first, name) for name in ("network", "memory") if hasattr(first, name)
        }
        self._method = type(first).from_config(
            {**first.get_config(), **parts, "heads": heads or None}
        )
        self._method.compile(keras.optimizers.SGD(float(first.optimizer.learning_rate)))
        if isinstance(self._method, ReplayLearner):
            self._method.learn_on(chain)

    def set_rate(self, rate: float) -> None:
        """Set alpha of the coming steps."""
        self._method.optimizer.learning_rate = rate

    def draw_ahead(self, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The slots and weights, [steps, S, n], of what rings draw in the coming steps."""
        rings = [memory for memory in self._memories if isinstance(memory, RingMemory)]
        return draw_all_ahead(rings, self._method.memory_batch_size, steps)

    def take(
        self, batch: Batch, skips: Skips, drawn: tuple[tf.Tensor, tf.Tensor] | None
    ) -> tuple[Outcome, Skips]:
        """Read the memories, learn, update the weights, write the memories. Graph code.

        Args:
            batch: The stream batches, with a leading dimension S.
            skips: The counters before the step.
            drawn: The step's own of `draw_ahead`, where the caller writes the memories; else None.

        Returns:
            What there is to measure, with a leading dimension S, and the counters after the step.
        """
        logits, values, measured, finite = self._update(batch, skips, drawn)
        left_out = tf.cast(tf.logical_not(finite), tf.int32)
        skips = Skips(skips.skipped + left_out, (skips.in_a_row + left_out) * left_out)
        if self._memories and drawn is None:
            weights = tf.where(finite[:, None], batch.weights, 0.0)
            write_all(self._memories, batch._replace(weights=weights))
        logits = tf.cast(logits, self._learners[0].outcome_dtypes().logits)
        return Outcome(logits, values, measured), skips

    def _update(
        self, batch: Batch, skips: Skips, drawn: tuple[tf.Tensor, tf.Tensor] | None
    ) -> tuple[tf.Tensor, ...]:
        stream = self._with_own_heads(batch)
        if not isinstance(self._method, ReplayLearner):
            return self._apply(self._learn_stream(stream), skips)
        if drawn is None:
            replay = read_all(self._memories, self._method.memory_batch_size)
        else:
            replay = rows_of_all(self._memories, *drawn)
        replay = self._with_own_heads(replay)
        replays = tf.reduce_any(replay.weights > 0, axis=1)

        def both() -> tuple[tf.Tensor, ...]:
            step = self._method.learn_both(stream, replay)
            # With an empty memory f_I is 0 and the step that of the stream; only the loss counts.
            alone = tf.constant([float(name == "loss") for name in self._method.quantities])
            return self._apply(
                step._replace(measured=tf.where(replays[:, None], step.measured, alone)), skips
            )

        return tf.cond(
            tf.reduce_any(replays), both, lambda: self._apply(self._learn_stream(stream), skips)
        )

    def _with_own_heads(self, batch: Batch) -> Batch:
        first = self._heads * tf.range(len(self._learners))
        return batch._replace(tasks=batch.tasks + first[:, None])

    def _learn_stream(self, batch: Batch) -> Step:
        def loss_of(logits: tf.Tensor) -> tuple[tf.Tensor, Any]:
            logits = self._method.masked(logits, batch)
            loss = self._method.mean_loss(logits, batch)
            return loss, (logits, {"loss": loss})

        inputs, slopes, found = self._chain.slopes(batch.images, loss_of)
        return self._method.step(RowDirection(self._chain.factors(inputs, slopes)), *found)

    def _apply(self, step: Step, skips: Skips) -> tuple[tf.Tensor, ...]:
        """Apply the finite steps; logits, values and measured of `Outcome`, and which those are."""
        assert isinstance(step.direction, RowDirection)  # every step here is of rows
        size = tf.cast(step.direction.size, tf.float32)
        finite = tf.math.is_finite(size + step.values[:, 0])
        finite &= skips.in_a_row < SKIPS_IN_A_ROW
        rate = self._method.optimizer.learning_rate
        self._chain.descend_where(finite, step.direction.factors, rate)
        values = tf.where(finite[:, None], step.values, float("nan"))
        measured = tf.where(finite[:, None], step.measured, 0.0)
        return step.logits, values, measured, finite
