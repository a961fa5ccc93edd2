"""Random draws that are the same with and without XLA. No seed may be used twice."""

import functools

import numpy as np
import tensorflow as tf

from nccl_tf.xla import Argument, in_program

_PHILOX = 1
_NARROW = 2**32 - 1


def with_argument(seed: int) -> int:
    """A seed, whose variable for programs is there before a step is traced.

    TensorFlow traces a function twice that makes a variable.
    """
    _argument(seed)
    return seed


def seeded(seed: int, number: tf.Tensor) -> tf.Tensor:
    """int64 [2]: the seed of a draw.

    Args:
        seed: Of who draws.
        number: int64 scalar, of the draw, never the same twice.
    """
    return tf.stack([number_of(seed), number])


def number_of(seed: int) -> tf.Tensor:
    """int64 scalar: a seed, which a program of XLA is given when it runs. Graph code."""
    if not in_program():
        return tf.constant(seed, tf.int64)
    number = _argument(seed).read()
    # Changes nothing, and says to `_is_narrow` how large a number it may be.
    is_narrow = 0 <= seed <= _NARROW
    return tf.bitwise.bitwise_and(number, tf.constant(_NARROW, tf.int64)) if is_narrow else number


@functools.cache
def _argument(seed: int) -> Argument:
    with tf.init_scope():  # A variable of no graph.
        return Argument(seed, "int64")


def apart(seed: int, number: tf.Tensor) -> tf.Tensor:
    """int64 [2]: the seed of a learner's draw, apart from those of its memory.

    A memory draws by numbers below 2^32, the first of which is often the learner's seed too.

    Args:
        seed: The learner's.
        number: int64 scalar, of the draw.
    """
    return tf.stack([number_of(seed) + 2**32, number])


def _is_narrow(seed: tf.Tensor) -> bool:
    """Whether a seed is known to be one that XLA does not cut: its first number has 32 bits.

    The second one, which counts the draws of a run, stays below 2^32.
    """
    known = tf.get_static_value(seed, partial=True)
    if known is not None and known[0] is not None:
        return 0 <= known[0] <= _NARROW
    if tf.executing_eagerly() or seed.op.type != "Pack":
        return False
    first = seed.op.inputs[0].op
    return first.type == "BitwiseAnd" and tf.get_static_value(first.inputs[1]) == _NARROW


def uniform_below(seed: tf.Tensor, bounds: tf.Tensor) -> tf.Tensor:
    """Independent uniform draws from {0, ..., bound - 1}.

    Draws are remainders of 64-bit Philox integers, uniform to within bound / 2^64.

    Args:
        seed: int64 [2].
        bounds: int64 [n], each at least 1.

    Returns:
        int64 [n].
    """
    if _is_narrow(seed):
        # The same bits as below; one operation scrambles the seed in place of twenty.
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=tf.shape(bounds), key=key, counter=counter, alg=_PHILOX, dtype=tf.uint64
        )
    else:
        bits = tf.random.stateless_uniform(
            tf.shape(bounds), seed, minval=None, maxval=None, dtype=tf.uint64, alg="philox"
        )
    return tf.cast(tf.math.floormod(bits, tf.cast(bounds, tf.uint64)), tf.int64)


def random_order(seed: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """A uniformly random order of the examples, with padding last.

    Args:
        seed: int64 [2].
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
        seed: int64 [2].
        count: Number of draws.
    """
    integers = uniform_below(seed, tf.fill([count], tf.constant(2**24, tf.int64)))
    return (tf.cast(integers, tf.float32) + 0.5) * 2.0**-24


def weighted_sample_without_replacement(
    seed: tf.Tensor, weights: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Successive draws with probability proportional to weight (Efraimidis and Spirakis, 2006).

    Args:
        seed: int64 [2].
        weights: float32 [n], at least 0; items with weight 0 come last, in random order.
        count: int32 scalar, number of draws.

    Returns:
        int32 [min(count, n)], distinct indices, in the order of the draws.
    """
    # Exponential arrival times of rate w are -log(u)/w; the earliest arrivals are drawn.
    rates = tf.maximum(weights, 1e-30)
    times = -tf.math.log(uniform(seed, tf.shape(weights)[0]))
    return tf.argsort(tf.math.log(times) - tf.math.log(rates))[:count]


def sample_without_replacement(seed: tf.Tensor, population: tf.Tensor, count: int) -> tf.Tensor:
    """A uniform subset of {0, ..., population - 1}, by Floyd's algorithm (Bentley and Floyd, 1987).

    Floyd draws t_i from {0, ..., j_i}, j_i = population - count + i, and takes j_i instead of t_i
    if t_i is already in the subset. That is so if t_i equals an earlier t, or an earlier j_l that
    was itself such a replacement. The second rule is a chain, which is followed by pointer doubling
    here: the cost depends on `count` alone, without a loop over the draws.

    Args:
        seed: int64 [2].
        population: int64 scalar, at least `count`.
        count: Size of the subset.

    Returns:
        int64 [count], distinct, in an order that is not uniformly random.
    """
    index = tf.range(count, dtype=tf.int64)
    spare = population - count
    replacement = spare + index
    drawn = uniform_below(seed, replacement + 1)
    equal = tf.equal(drawn[:, None], drawn)
    earlier = tf.less(index[None, :], index[:, None])
    replaced = tf.reduce_any(tf.logical_and(equal, earlier), axis=-1)
    ancestor = drawn - spare
    ancestor = tf.where(tf.logical_and(ancestor >= 0, ancestor < index), ancestor, index)
    for _ in range(max(count - 1, 1).bit_length()):
        ancestor_replaced = tf.gather(replaced, ancestor)
        replaced = tf.logical_or(replaced, ancestor_replaced)
        ancestor = tf.gather(ancestor, ancestor)
    return tf.where(replaced, replacement, drawn)


def standard_normal(seed: tf.Tensor, count: int, dtype: str) -> tf.Tensor:
    """Independent standard normal draws, by Box and Muller (1958) from Philox integers.

    With and without XLA they agree up to the rounding of the logarithm and the cosine.

    Args:
        seed: int64 [2].
        count: Number of draws.
        dtype: dtype of the result; the draws have the resolution of float32.

    Returns:
        [count], of that dtype.
    """
    pairs = (count + 1) // 2
    bits = tf.random.stateless_uniform(
        [2, pairs], seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )
    # 24 bits are exact in float32; adding a half keeps the argument of the logarithm above 0.
    integers = tf.cast(
        tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.int32), dtype
    )
    u = (integers + 0.5) * 2.0**-24
    radius, angle = tf.sqrt(-2.0 * tf.math.log(u[0])), 2.0 * np.pi * u[1]
    return tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)[:count]
