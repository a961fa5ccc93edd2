"""Which slots a memory reads and writes, as integers."""

import tensorflow as tf

from nccl_tf.rng import sample_without_replacement


def choose(stored: tf.Tensor, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Which of the readable examples a read returns: `count` of them, or all and repetitions.

    Args:
        stored: int32 scalar, how many there are.
        count: Number of rows of the result.
        seed: int64 [2], never the same twice.

    Returns:
        Positions int32 [count], and weights float32 [count], 0 for repetitions.
    """
    index = tf.range(count)
    drawn = sample_without_replacement(seed, tf.maximum(stored, count), count)
    repeated = tf.math.floormod(index, tf.maximum(stored, 1))
    return tf.where(stored > count, drawn, repeated), tf.cast(index < stored, tf.float32)


def keep_last(slots: tf.Tensor, nowhere: int) -> tf.Tensor:
    """Send all but the last of equal slots to `nowhere`, so that a scatter has no order to choose.

    Args:
        slots: int32 [n].
        nowhere: The number that stands for no slot.

    Returns:
        int32 [n], distinct but for `nowhere`.
    """
    index = tf.range(tf.shape(slots)[0])
    same = tf.equal(slots[:, None], slots[None, :])
    later = tf.less(index[:, None], index[None, :])
    return tf.where(tf.reduce_any(tf.logical_and(same, later), axis=-1), nowhere, slots)
