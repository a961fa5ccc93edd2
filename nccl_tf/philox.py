"""The generator Philox4x32-10 (Salmon et al., SC 2011) for many seeds at once.

TensorFlow draws with one seed an operation, and for many in a loop, which for the few numbers of a
memory's read costs eight times as much as these integers of all seeds together.
"""

from typing import Any

import tensorflow as tf

_MULTIPLIERS, _INCREMENTS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_SCRAMBLING_KEY = 0x3EC8F720, 0x02461E29
_ROUNDS = 10


def uniform_uint64(seeds: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """What `tf.random.stateless_uniform` draws from all uint64 with each seed, by alg="philox".

    Args:
        seeds: int64 [n, 2].
        count: int32 scalar, draws with each.

    Returns:
        uint64 [n, count].
    """
    words = tf.cast(tf.bitcast(seeds, tf.uint32), tf.uint64)
    scrambled = tf.stack(_philox(words[:, None], _words(_SCRAMBLING_KEY)), axis=-1)
    key, start = tf.unstack(scrambled, axis=2)
    block = tf.cast(tf.range((count + 1) // 2), tf.uint64)
    of_block, of_start = _words([[1, 0], [0, 0]]), _words([[0], [1]])
    counter = block[:, None, None] * of_block + start[:, :, None] * of_start
    low, high = _philox(counter, key)
    draws = low | tf.bitwise.left_shift(high, _words(32))
    return tf.reshape(draws, [-1, 2 * tf.size(block)])[:, :count]


def _philox(counter: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Random words of counters: the first and third, and the second and fourth of each.

    Words of 32 bits are in uint64, which their products need.

    Args:
        counter: uint64 [n, m, 2, 2], the four words of each.
        key: uint64 [2] or [n, 1, 2].

    Returns:
        uint64 [n, m, 2] each.
    """
    mask, bits, multipliers, increments = map(_words, (2**32 - 1, 32, _MULTIPLIERS, _INCREMENTS))

    def mix(key: tf.Tensor, even: tf.Tensor, odd: tf.Tensor) -> tuple[tf.Tensor, ...]:
        products = tf.reverse(even * multipliers, [-1])
        even = tf.bitwise.right_shift(products, bits) ^ odd ^ key
        return (key + increments) & mask, even, products & mask

    # A loop, so that the operations of a round are traced once, not ten times.
    even, odd = tf.unstack(counter, axis=-1)
    state = tf.while_loop(lambda *_: True, mix, (key, even, odd), maximum_iterations=_ROUNDS)
    return state[1:]


def _words(values: Any) -> tf.Tensor:
    return tf.constant(values, tf.uint64)
