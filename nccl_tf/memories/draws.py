"""Random draws of whole numbers that do not depend on how the graph is compiled."""

import tensorflow as tf


def uniform_below(seed: tf.Tensor, bounds: tf.Tensor) -> tf.Tensor:
    """An independent uniform draw from {0, ..., bound - 1} for each bound.

    Philox integers give the same numbers with and without XLA. The remainder of a 64-bit draw is
    uniform to within bound / 2^64.

    Args:
        seed: int64 [2], never the same twice.
        bounds: int32 [n], each at least 1.

    Returns:
        int32 [n].
    """
    bits = tf.random.stateless_uniform(
        tf.shape(bounds), seed, minval=None, maxval=None, dtype=tf.uint64, alg="philox"
    )
    return tf.cast(tf.math.floormod(bits, tf.cast(bounds, tf.uint64)), tf.int32)


def without_replacement(seed: tf.Tensor, population: tf.Tensor, count: int) -> tf.Tensor:
    """A uniform subset of {0, ..., population - 1}, by Floyd's algorithm (Bentley and Floyd, 1987).

    Floyd draws t_i from {0, ..., j_i}, j_i = population - count + i, and takes j_i in place of t_i
    when t_i was taken before. t_i was taken before if it equals an earlier t, or if it equals an
    earlier j_l that was itself such a replacement; the second rule is a chain, followed here by
    doubling. So the cost depends on `count` alone, and there is no loop over the draws.

    Args:
        seed: int64 [2], never the same twice.
        population: int32 scalar, at least `count`.
        count: Size of the subset.

    Returns:
        int32 [count], distinct, in an order that is not uniform.
    """
    index = tf.range(count)
    replacement = population - count + index
    drawn = uniform_below(seed, replacement + 1)
    equal = tf.equal(drawn[:, None], drawn[None, :])
    earlier = tf.less(index[None, :], index[:, None])
    replaced = tf.reduce_any(tf.logical_and(equal, earlier), axis=1)
    ancestor = drawn - (population - count)
    ancestor = tf.where(tf.logical_and(ancestor >= 0, ancestor < index), ancestor, index)
    for _ in range(max(count - 1, 1).bit_length()):
        replaced = tf.logical_or(replaced, tf.gather(replaced, ancestor))
        ancestor = tf.gather(ancestor, ancestor)
    return tf.where(replaced, replacement, drawn)
