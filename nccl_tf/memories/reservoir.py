"""The reservoir: every example of the stream so far is in it with the same probability."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import check_name
from nccl_tf.memories.memory import Memory, keep_last
from nccl_tf.memories.past_slots import PastSlots
from nccl_tf.rng import uniform_below

RULES = ("exact", "off_by_one")


@keras.saving.register_keras_serializable(package="nccl_tf")
class ReservoirMemory(Memory):
    """Reservoir sampling (Vitter, 1985) over the whole stream, current task included.

    Example number n (from 1) is appended while n <= capacity; later it draws j uniformly from
    {0, ..., n-1} and overwrites slot j if j < capacity. Each of n examples is then stored with
    probability capacity / n. What is written is readable from the next step, or, with
    `exclude_current_task`, when its task has ended; reads are then uniform over the stored examples
    of ended tasks.

    Args:
        capacity: Number of slots M.
        image_shape: (height, width, channels).
        image_dtype: dtype of the stored images.
        rule: "exact", or "off_by_one" for the TF1 code base's draw from {0, ..., n-2}, with which
            the first example beyond the capacity is always stored.
        exclude_current_task: Whether the examples of the task that is open are not read (MIR). This
            costs two whole numbers a slot, and a write and a read remain O(batch).
        seed: Seed of the draws.

    Raises:
        UserError: The capacity is below 1, or the rule is unknown.
    """

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        image_dtype: str = "uint8",
        rule: str = "exact",
        exclude_current_task: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(capacity, image_shape, image_dtype, seed, **kwargs)
        self.rule = check_name("reservoir rule", rule, RULES)
        self.seen = self._state("seen", (), "int32")
        self.past = PastSlots(self.capacity, name="past") if exclude_current_task else None

    def readable_count(self) -> tf.Tensor:
        if self.past is not None:
            return self.past.count.value
        return tf.minimum(self.seen.value, self.capacity)

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return positions if self.past is None else self.past.at(positions)

    def slots_for(self, batch: Batch) -> tf.Tensor:
        valid = tf.cast(batch.weights > 0, tf.int32)
        number = self.seen.value + tf.cumsum(valid)
        values_to_draw_from = number - 1 if self.rule == "off_by_one" else number
        drawn = uniform_below(self.next_seed(), tf.maximum(values_to_draw_from, 1))
        overwritten = tf.where(drawn < self.capacity, drawn, self.capacity)
        self.seen.value.assign_add(tf.reduce_sum(valid))
        slots = tf.where(number <= self.capacity, number - 1, overwritten)
        if self.past is not None:
            kept = tf.where(batch.weights > 0, slots, self.capacity)
            self.past.remove(keep_last(kept, self.capacity))
        return slots

    def close_task(self, task_id: int) -> None:
        if self.past is not None:
            self.past.reset(min(int(self.seen.numpy()), self.capacity))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "capacity": self.capacity,
            "rule": self.rule,
            "exclude_current_task": self.past is not None,
        }
