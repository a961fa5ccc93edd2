"""The memory of GSS: examples whose gradients point in unlike directions."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.base import Memory
from nccl_tf.rng import uniform, weighted_sample_without_replacement
from nccl_tf.variables import read_rows, write_rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class ScoredMemory(Memory):
    """Keeps a score with each example, and prefers examples of low score (Aljundi et al., 2019).

    The score of an example is the highest cosine between its gradient and some gradients of the
    memory, plus 1: from 0 (like none) to 2 (a double). While there is room, everything is stored.
    Then a batch is let in only if its own highest cosine is negative; each of its examples meets a
    stored one, drawn with probability proportional to (C_i - min C)/(max C - min C + 0.01), and
    replaces it with probability C_i/(C_i + c). The draw looks at all scores, 4 bytes a slot.

    Args:
        capacity: Number of slots M.
        example_shape: Shape of one example, such as (height, width, channels).
        example_dtype: dtype of the stored inputs.
        seed: Seed of the draws.

    Raises:
        UserError: The capacity is below 1.
    """

    def __init__(self, capacity: int, example_shape: tuple[int, ...], **kwargs: Any):
        super().__init__(capacity, example_shape, **kwargs)
        self.stored = self._state("stored", (), "int32")
        self.scores = self._state("scores", (self.capacity + 1,), "float32")

    def readable_count(self) -> tf.Tensor:
        return self.stored.value

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return positions

    def has_room(self) -> tf.Tensor:
        """bool scalar: whether a slot is empty."""
        return self.stored.value < self.capacity

    def offer(self, batch: Batch, cosines: tf.Tensor, batch_cosine: tf.Tensor) -> None:
        """Offer a batch to the memory.

        Where a batch fills the last slots, those of its examples that find none are passed over.

        Args:
            batch: Examples; those of weight 0 are passed over.
            cosines: float32 [n], the highest cosine of each example's gradient with the memory's.
            batch_cosine: float32 scalar, that of the gradient of the batch.

        Raises:
            TypeError: The inputs are not of the memory's dtype.
        """
        scores = tf.clip_by_value(cosines + 1.0, 0.0, 2.0)
        slots = tf.cond(
            self.has_room(),
            lambda: self._next_slots(batch),
            lambda: tf.cond(
                batch_cosine < 0, lambda: self._replaced(batch, scores), lambda: self._none(batch)
            ),
        )
        self.put(batch, slots)
        write_rows(self.scores, slots, scores)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "capacity": self.capacity}

    def _none(self, batch: Batch) -> tf.Tensor:
        return tf.fill(tf.shape(batch.labels), self.capacity)

    def _next_slots(self, batch: Batch) -> tf.Tensor:
        valid = tf.cast(batch.weights > 0, tf.int32)
        slots = self.stored.value + tf.cumsum(valid) - 1
        slots = tf.where((valid > 0) & (slots < self.capacity), slots, self.capacity)
        self.stored.assign(tf.minimum(self.stored.value + tf.reduce_sum(valid), self.capacity))
        return slots

    def _replaced(self, batch: Batch, scores: tf.Tensor) -> tf.Tensor:
        stored = self.scores.value[: self.capacity]
        least, most = tf.reduce_min(stored), tf.reduce_max(stored)
        count = tf.shape(scores)[0]
        met = weighted_sample_without_replacement(
            self.next_seed(), (stored - least) / (most - least + 0.01), count
        )
        # A batch of more examples than slots: the last ones meet none.
        met = tf.concat([met, tf.fill([count - tf.shape(met)[0]], self.capacity)], axis=0)
        old = read_rows(self.scores, met)
        replaces = uniform(self.next_seed(), count) < tf.math.divide_no_nan(old, old + scores)
        return tf.where(replaces & (batch.weights > 0), met, self.capacity)
