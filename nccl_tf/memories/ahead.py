"""The reads and writes of several steps at once, as if they had been made one after the other."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from nccl_tf.batch import Batch


class Ahead(NamedTuple):
    """What a memory gives in several steps, and takes after them.

    Attributes:
        replays: [steps, count, ...], what each step reads if every one before it has been learned.
        keep: Called after the last step that was taken, with int32 scalars: the number of the step
            after it, and the same or one less where that step was skipped. Writes the batches of
            the steps before the latter, and counts what the others drew.
    """

    replays: Batch
    keep: Callable[[tf.Tensor, tf.Tensor], None]


class WritesInTurn:
    """Which of many writes a slot holds, at any time between them.

    Slot and number of each write are one integer, so that sorting orders them by both, and a search
    finds the last write to a slot before a time: n log n for n writes and n questions.

    Args:
        slots: int32 [n], where each write goes, one after the other.
        nowhere: What stands for no slot.
    """

    def __init__(self, slots: tf.Tensor, nowhere: int):
        self._count, self._nowhere = tf.size(slots, tf.int64), nowhere
        self._keys = tf.sort(self._first_key(slots) + tf.range(self._count))

    def _first_key(self, slots: tf.Tensor) -> tf.Tensor:
        return tf.cast(slots, tf.int64) * self._count

    def before(self, slots: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
        """The last write to each of some slots before a time.

        Args:
            slots: int32 [k].
            times: int32 [k], numbers of writes, each below n.

        Returns:
            int32 [k], numbers of writes; -1 where there was none.
        """
        first = self._first_key(slots)
        place = tf.searchsorted(self._keys, first + tf.cast(times, tf.int64))
        found = tf.gather(tf.concat([[tf.constant(-1, tf.int64)], self._keys], axis=0), place)
        return tf.cast(tf.maximum(found - first, -1), tf.int32)

    def last(self, end: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """What slots hold before a time, of those that were written.

        Args:
            end: int32 scalar, a number of writes.

        Returns:
            The slots and the numbers of their last writes, int32 [k] each.
        """
        end = tf.cast(end, tf.int64)
        slots = self._keys // self._count
        first = slots * self._count
        after = tf.concat([self._keys[1:], [tf.int64.max]], axis=0)
        is_last = (self._keys < first + end) & (after >= first + end) & (slots < self._nowhere)
        kept = tf.where(is_last)[:, 0]
        slots, numbers = tf.gather(slots, kept), tf.gather(self._keys - first, kept)
        return tf.cast(slots, tf.int32), tf.cast(numbers, tf.int32)
