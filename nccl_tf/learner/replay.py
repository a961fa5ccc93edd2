"""The base of the methods that replay examples from a memory."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, as_batch, joined, split_inputs
from nccl_tf.chunks import all_batches_of, batch_of
from nccl_tf.errors import UserError
from nccl_tf.hyperparameters import BATCH_NORM
from nccl_tf.learner import replicas
from nccl_tf.learner.dense_gradients import DenseChain
from nccl_tf.learner.learner import Learner, Step
from nccl_tf.learner.step import Outcome, one_after_another
from nccl_tf.memories.base import Memory
from nccl_tf.memories.ring import RingMemory

_PASSED_BY = (
    "outputs", "logits", "both_logits", "forward_both", "joint_logits", "regularization",
    "gradients",
)  # fmt: skip
"""What a pass over the rows of a chain does not call: a subclass's own is called on a tape."""

_STEPPED_BY = ("take_step", "update", "replay_and_apply", "after_update")
"""What steps that look ahead do not call: a subclass's own is called in every step."""


class MemoryLearner(Learner):
    """A learner with a memory, which is written after every update and told when a task has ended.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: The memory.
        **kwargs: As for `Learner`.
    """

    def __init__(self, network: keras.Model, memory: Memory, **kwargs: Any):
        super().__init__(network, **kwargs)
        self.memory = memory

    def after_update(self, batch: Batch) -> None:
        self.memory.write(batch)

    def task_ends(self, task_id: int) -> None:
        self.memory.close_task(task_id)

    def get_config(self) -> dict[str, Any]:
        memory = keras.saving.serialize_keras_object(self.memory)
        return {**super().get_config(), "memory": memory}


class ReplayLearner(MemoryLearner):
    """A learner that replays a batch from its memory in every step.

    While the memory has nothing to read, a step is plain training on the stream.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: The replay memory.
        memory_batch_size: Examples drawn per step.
        batch_norm: How the two batches pass through batch normalisation: "separate", each with its
            own statistics, memory first; "joint", with the statistics of both; "frozen", with the
            moving averages.
        **kwargs: As for `Learner`.

    Raises:
        UserError: The memory batch is below 1, or `batch_norm` is unknown.
    """

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        memory_batch_size: int = 10,
        batch_norm: str = "separate",
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        if memory_batch_size < 1:
            raise UserError(
                f"received a memory batch of {memory_batch_size}; expected at least 1 example: "
                "raise --memory_batch_size, or use finetune to train without a memory"
            )
        self.memory_batch_size = int(memory_batch_size)
        if self.replicas is not None:
            replicas.check_divides("memory_batch_size", self.memory_batch_size, self.replicas)
        self.batch_norm = BATCH_NORM.check(batch_norm)
        self._chain: DenseChain | None = None

    def learn(self, batch: Batch, replay: Batch | None = None) -> Step:
        """The direction of one step on a stream batch and, where there is one, a memory batch."""
        if replay is None:
            return self.learn_stream(batch)
        if self.replicas is None:
            return self.learn_both(batch, replay)
        return tf.cond(
            tf.reduce_any(replay.weights > 0),
            lambda: self.learn_both(batch, replay),
            lambda: self.learn_stream(batch),
        )

    def learn_both(self, batch: Batch, replay: Batch) -> Step:
        """The direction of one step where the memory has examples. Graph code."""
        raise NotImplementedError

    def replay_and_apply(
        self, batch: Batch, replay: Batch
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Learn both batches, or the stream batch alone where there is nothing in the other one.

        Returns:
            As `update`.
        """
        # Outside of XLA, whose convolutions inside of a conditional take sixteen times as long
        # on a CPU (benchmarks/xla.py).
        return tf.cond(
            tf.reduce_any(replay.weights > 0),
            lambda: self._learn_and_apply(batch, replay),
            lambda: self._learn_and_apply(batch),
        )

    def joint_logits(self, batch: Batch, replay: Batch) -> tf.Tensor:
        """What `both_logits` gives as one tensor, the memory batch in front."""
        if self.batch_norm == "joint":
            return self.logits(joined(replay, batch), True)
        return tf.concat(self.both_logits(batch, replay), axis=0)

    def masked_jointly(self, logits: tf.Tensor, batch: Batch, replay: Batch) -> tf.Tensor:
        """The network's logits of both batches, memory in front, masked as in `joint_logits`."""
        if self.batch_norm == "joint":
            return self.masked(logits, joined(replay, batch))
        rows = tf.shape(replay.labels)[-1]
        of_memory, of_stream = logits[..., :rows, :], logits[..., rows:, :]
        both = self.masked(of_memory, replay), self.masked(of_stream, batch)
        return tf.concat(both, axis=-2)

    def both_logits(self, batch: Batch, replay: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Masked logits of the memory batch and of the stream batch, by the batch-norm policy."""
        return self.forward_both(self.logits, batch, replay)

    def forward_both(
        self, forward: Callable[[Batch, bool], tf.Tensor], batch: Batch, replay: Batch
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`forward(examples, training)` of memory and stream batch, by the batch-norm policy."""
        if self.batch_norm == "joint":
            results = forward(joined(replay, batch), True)
            memory_rows = tf.shape(replay.labels)[0]
            return results[:memory_rows], results[memory_rows:]
        training = self.batch_norm == "separate"
        return forward(replay, training), forward(batch, training)

    def update(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        replay = self.memory.read(self.memory_batch_size)
        if self.replicas is not None:
            return self._learn_and_apply(batch, replicas.own_slice(replay))
        return self.replay_and_apply(batch, replay)

    def looks_ahead(self, chunk: Any) -> bool:
        """Whether nothing that a chunk has written is read before its end."""
        if type(self.memory) is not RingMemory or _overrides(self, _STEPPED_BY):
            return False
        tasks = split_inputs(chunk[0])[1]
        tasks = self.task.value if tasks is None else tasks
        return self.memory.reads_nothing_of(np.asarray(tasks))

    def take_steps_ahead(self, chunk: Any) -> Outcome:
        """The steps of a chunk, with all draws before the first and all writing after the last.

        Reading and writing are many small operations on a few whole numbers, which cost hardly more
        for all steps together than for one.
        """
        self.traces += 1
        count = tf.shape(chunk[1])[0]
        assert isinstance(self.memory, RingMemory)  # `looks_ahead` has seen to it
        slots, weights = self.memory.draw_ahead(self.memory_batch_size, count)

        def take(replays: bool) -> Outcome:
            def step(i: tf.Tensor, _: Any) -> tuple[Outcome, Any]:
                batch = as_batch(batch_of(chunk, i), self.task.value)
                replay = self.memory.rows(slots[i], weights[i])
                learned = (batch, replay) if replays else (batch,)
                return self._observed(batch, lambda: self._learn_and_apply(*learned), replay), ()

            outcomes, _ = one_after_another(count, self.outcome_dtypes(), step)
            return outcomes

        outcomes = tf.cond(tf.reduce_any(weights > 0), lambda: take(True), lambda: take(False))
        batch = as_batch(all_batches_of(chunk), self.task.value)
        counted = outcomes.counted(tf.reshape(batch.weights, [count, -1]))
        self.memory.write(batch._replace(weights=tf.reshape(counted, [-1])))
        return outcomes

    def compile(self, optimizer: Any = "sgd", **kwargs: Any) -> None:
        """As `Learner.compile`."""
        super().compile(optimizer, **kwargs)
        self._chain = self._fused_chain()

    def _fused_chain(self) -> DenseChain | None:
        """The network as a chain of dense layers, where one pass over its rows is the same step."""
        if self.replicas is not None or self.loss_scale() is not None:
            return None
        if _overrides(self, _PASSED_BY):
            return None
        chain = DenseChain.of(self.network)
        if chain is None or not chain.holds(self.trainable_variables):
            return None
        return chain

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "memory_batch_size": self.memory_batch_size,
            "batch_norm": self.batch_norm,
        }


def _overrides(learner: ReplayLearner, names: Sequence[str]) -> bool:
    return any(getattr(type(learner), name) is not getattr(ReplayLearner, name) for name in names)
