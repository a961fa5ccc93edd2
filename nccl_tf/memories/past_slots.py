"""The slots that hold examples of ended tasks, kept so that a batch costs O(batch)."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.variables import read_rows, write_rows


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
