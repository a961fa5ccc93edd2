"""The reservoir: every example of the stream so far is in it with the same probability."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.choices import RESERVOIR_RULES
from nccl_tf.errors import check_name
from nccl_tf.memories.base import Memory, keep_last
from nccl_tf.rng import uniform_below
from nccl_tf.variables import read_rows, write_rows


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
        example_shape: Shape of one example, such as (height, width, channels).
        example_dtype: dtype of the stored inputs.
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
        example_shape: tuple[int, ...],
        example_dtype: str = "uint8",
        rule: str = "exact",
        exclude_current_task: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(capacity, example_shape, example_dtype, seed, **kwargs)
        self.rule = check_name("reservoir rule", rule, RESERVOIR_RULES)
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


class PastSlots(keras.layers.Layer):
    """A set of slots that shrinks by the slots a batch overwrites and is refilled at a task's end.

    The slots stand in a permutation, those of the set in front. To take some out, they change
    places with the last ones of the set; the inverse permutation finds them. So removing a batch
    and drawing from the set touch as many entries as the batch has, whatever the capacity.

    Args:
        capacity: Number of slots.
    """

    def __init__(self, capacity: int, **kwargs: Any):
        super().__init__(trainable=False, **kwargs)
        self.capacity = int(capacity)
        # The entry after the last slot takes what is not written anywhere.
        self.order = self._state("order", np.arange(capacity + 1))
        self.position = self._state("position", np.arange(capacity + 1))
        self.count = self._state("count", np.array(0))
        self.built = True

    def at(self, positions: tf.Tensor) -> tf.Tensor:
        """int32 [n]: the slots number `positions` (below `count`) of the set."""
        return read_rows(self.order, positions)

    def reset(self, count: int) -> None:
        """Make the slots 0 to count - 1 the set."""
        self.order.assign(np.arange(self.capacity + 1))
        self.position.assign(np.arange(self.capacity + 1))
        self.count.assign(count)

    def remove(self, slots: tf.Tensor) -> None:
        """Take slots out of the set.

        Args:
            slots: int32 [n], distinct but for `capacity`, which stands for none; those that are not
                in the set stay out.
        """
        size = tf.shape(slots)[0]
        before = self.count.value.read_value()
        where = read_rows(self.position, slots)
        inside = (slots < self.capacity) & (where < before)
        after = before - tf.reduce_sum(tf.cast(inside, tf.int32))
        # The set shrinks to [0, after): holes left there are filled from the tail [after, before).
        tail = tf.minimum(after + tf.range(size), self.capacity)
        taken = tf.reduce_any(tf.equal(tail[:, None], where[None, :]) & inside[None, :], axis=1)
        holes = _front(where, inside & (where < after), self.capacity)
        kept = _front(tail, (tail < before) & tf.logical_not(taken), self.capacity)
        out, into = self.at(holes), self.at(kept)
        for places, slots_there in ((holes, into), (kept, out)):
            write_rows(self.order, places, slots_there)
            write_rows(self.position, slots_there, places)
        self.count.assign(after)

    def _state(self, name: str, value: np.ndarray) -> keras.Variable:
        variable = self.add_weight(
            name=name, shape=value.shape, dtype="int32", initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip
        variable.assign(value)
        return variable


def _front(values: tf.Tensor, chosen: tf.Tensor, nothing: int) -> tf.Tensor:
    """The chosen values in front, in their order, and `nothing` after them: int32 [n]."""
    order = tf.argsort(tf.cast(tf.logical_not(chosen), tf.int32), stable=True)
    return tf.gather(tf.where(chosen, values, nothing), order)
