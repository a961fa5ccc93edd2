"""Random draws that do not depend on how the graph is compiled.

Where a seed may be int64 [..., 2], several draws are made at once, each as with its seed alone.
"""

import numpy as np
import tensorflow as tf


def uniform_below(seed: tf.Tensor, bounds: tf.Tensor) -> tf.Tensor:
    """An independent uniform draw from {0, ..., bound - 1} for each bound.

    Philox integers give the same numbers with and without XLA. The remainder of a 64-bit draw is
    uniform to within bound / 2^64.

    Args:
        seed: int64 [..., 2], never the same twice.
        bounds: int32 [..., n], each at least 1.

    Returns:
        int32 [..., n].
    """
    if seed.shape.rank == 1:
        bits = _bits(seed, tf.shape(bounds))
    elif seed.shape[0] is not None:
        bits = tf.stack([_bits(one, tf.shape(bounds)[1:]) for one in tf.unstack(seed)])
    else:
        each = tf.TensorSpec(bounds.shape[1:], tf.uint64)
        bits = tf.map_fn(
            lambda one: _bits(one, tf.shape(bounds)[1:]), seed, fn_output_signature=each
        )
    return tf.cast(tf.math.floormod(bits, tf.cast(bounds, tf.uint64)), tf.int32)


def _bits(seed: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=tf.uint64, alg="philox"
    )


def random_order(seed: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """A uniformly random order of the examples that are not padding; padding comes after them.

    Args:
        seed: int64 [2], never the same twice.
        weights: float32 [n], 0 for padding.

    Returns:
        int32 [n], a permutation of {0, ..., n - 1}.
    """
    keys = tf.random.stateless_uniform(
        tf.shape(weights), seed, minval=None, maxval=None, dtype=tf.int64, alg="philox"
    )
    return tf.argsort(tf.where(weights > 0, keys, tf.int64.max))


def uniform(seed: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Independent uniform draws from (0, 1]: float32 [count].

    Args:
        seed: int64 [2], never the same twice.
        count: Number of draws.
    """
    whole = uniform_below(seed, tf.fill([count], 2**24))
    return (tf.cast(whole, tf.float32) + 0.5) * 2.0**-24


def weighted_sample_without_replacement(
    seed: tf.Tensor, weights: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Draws one after the other with probability proportional to weight.

    Args:
        seed: int64 [2], never the same twice.
        weights: float32 [n], at least 0; those of weight 0 come after all others, at random.
        count: int32 scalar.

    Returns:
        int32 [min(count, n)], distinct, in the order of the draws.
    """
    # An exponential clock of rate w rings at -log(u)/w; those that ring first are drawn
    # (Efraimidis and Spirakis, 2006).
    rates = tf.maximum(weights, 1e-30)
    times = -tf.math.log(uniform(seed, tf.shape(weights)[0]))
    return tf.argsort(tf.math.log(times) - tf.math.log(rates))[:count]


def sample_without_replacement(seed: tf.Tensor, population: tf.Tensor, count: int) -> tf.Tensor:
    """A uniform subset of {0, ..., population - 1}, by Floyd's algorithm (Bentley and Floyd, 1987).

    Floyd draws t_i from {0, ..., j_i}, j_i = population - count + i, and takes j_i in place of t_i
    when t_i was taken before. t_i was taken before if it equals an earlier t, or if it equals an
    earlier j_l that was itself such a replacement; the second rule is a chain, followed here by
    doubling. So the cost depends on `count` alone, and there is no loop over the draws.

    Args:
        seed: int64 [..., 2], never the same twice.
        population: int32 [...], at least `count`.
        count: Size of the subset.

    Returns:
        int32 [..., count], distinct, in an order that is not uniform.
    """
    index, stacked = tf.range(count), seed.shape.rank - 1
    spare = population[..., None] - count
    replacement = spare + index
    drawn = uniform_below(seed, replacement + 1)
    equal = tf.equal(drawn[..., :, None], drawn[..., None, :])
    earlier = tf.less(index[None, :], index[:, None])
    replaced = tf.reduce_any(tf.logical_and(equal, earlier), axis=-1)
    ancestor = drawn - spare
    ancestor = tf.where(tf.logical_and(ancestor >= 0, ancestor < index), ancestor, index)
    for _ in range(max(count - 1, 1).bit_length()):
        of_ancestor = tf.gather(replaced, ancestor, batch_dims=stacked)
        replaced = tf.logical_or(replaced, of_ancestor)
        ancestor = tf.gather(ancestor, ancestor, batch_dims=stacked)
    return tf.where(replaced, replacement, drawn)


def standard_normal(seed: tf.Tensor, count: int, dtype: str) -> tf.Tensor:
    """Independent standard normal numbers, by Box and Muller (1958) from Philox integers.

    They agree with and without XLA up to the rounding of the logarithm and the cosine.

    Args:
        seed: int64 [2], never the same twice.
        count: How many.
        dtype: Of the result; the numbers have the resolution of float32.

    Returns:
        [count] of that dtype.
    """
    pairs = (count + 1) // 2
    bits = tf.random.stateless_uniform(
        [2, pairs], seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )
    # 24 bits are exact in float32; the half keeps the logarithm from 0.
    whole = tf.cast(
        tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.int32), dtype
    )
    uniform01 = (whole + 0.5) * 2.0**-24
    radius, angle = tf.sqrt(-2.0 * tf.math.log(uniform01[0])), 2.0 * np.pi * uniform01[1]
    return tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)[:count]
