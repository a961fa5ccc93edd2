"""The memory of GSS: examples whose gradients point in different directions."""

from collections.abc import Mapping
from typing import ClassVar

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.memory import Memory
from nccl_tf.rng import uniform, weighted_sample_without_replacement
from nccl_tf.variables import read_rows, write_rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class ScoredMemory(Memory):
    r"""Stores a score with each example and keeps examples with a low score (Aljundi et al., 2019).

    The score C of an example is 1 plus the highest cosine similarity of its gradient to a sample of
    the memory's gradients: from 0 (opposite to all) to 2 (a duplicate). While slots are free, every
    example is stored. Then a batch is considered only if the highest cosine of the batch gradient
    is negative. Each example of score c is compared with a stored example i, drawn with probability
    proportional to $(C_i - \min C)/(\max C - \min C + 0.01)$, and replaces it with probability
    $C_i/(C_i + c)$. The draw reads all scores, 4 bytes a slot.

    Arguments and errors are those of `Memory`.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ScoredMemory(50)
    """

    takes_batches = False
    cannot: ClassVar[Mapping[str, str]] = {
        "learner": "is written by the gradients of examples, which GSS-Greedy takes"
    }

    def make_state(self) -> None:
        self.stored = self.state("stored", (), "int64")
        self.scores = self.state("scores", (self.capacity + 1,), "float32")

    def readable_count(self) -> tf.Tensor:
        return self.stored.value

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return positions

    def has_room(self) -> tf.Tensor:
        """bool scalar: whether a slot is free."""
        return self.stored.value < self.capacity

    def offer(self, batch: Batch, cosines: tf.Tensor, batch_cosine: tf.Tensor) -> None:
        """Offer a batch to the memory.

        When a batch fills the last free slots, the rest of its examples is dropped.

        Args:
            batch: Examples; those with weight 0 are ignored.
            cosines: float32 [n], the highest cosine similarity of each example's gradient to the
                memory's gradients.
            batch_cosine: float32 scalar, the same of the batch gradient.

        Raises:
            UserError: The inputs are not of the memory's dtype.
        """
        batch = self.writable(batch)
        scores = tf.clip_by_value(cosines + 1.0, 0.0, 2.0)
        slots = tf.cond(
            self.has_room(),
            lambda: self._append_slots(batch),
            lambda: tf.cond(
                batch_cosine < 0,
                lambda: self._replacement_slots(batch, scores),
                lambda: self._no_slots(batch),
            ),
        )
        self.put(batch, slots)
        write_rows(self.scores, slots, scores)

    def _no_slots(self, batch: Batch) -> tf.Tensor:
        return tf.fill(tf.shape(batch.tasks), tf.constant(self.capacity, tf.int64))

    def _append_slots(self, batch: Batch) -> tf.Tensor:
        valid = tf.cast(batch.weights > 0, tf.int64)
        slots = self.stored.value + tf.cumsum(valid) - 1
        slots = tf.where((valid > 0) & (slots < self.capacity), slots, self.capacity)
        self.stored.assign(tf.minimum(self.stored.value + tf.reduce_sum(valid), self.capacity))
        return slots

    def _replacement_slots(self, batch: Batch, scores: tf.Tensor) -> tf.Tensor:
        stored = self.scores.value[: self.capacity]
        lowest, highest = tf.reduce_min(stored), tf.reduce_max(stored)
        count = tf.shape(scores)[0]
        candidates = weighted_sample_without_replacement(
            self.next_seed(), (stored - lowest) / (highest - lowest + 0.01), count
        )
        # In a batch larger than the memory, the last examples have no candidate to replace.
        missing = count - tf.shape(candidates)[0]
        nowhere = tf.fill([missing], tf.constant(self.capacity, tf.int64))
        candidates = tf.concat([tf.cast(candidates, tf.int64), nowhere], axis=0)
        old = read_rows(self.scores, candidates)
        replaces = uniform(self.next_seed(), count) < tf.math.divide_no_nan(old, old + scores)
        return tf.where(replaces & (batch.weights > 0), candidates, self.capacity)
