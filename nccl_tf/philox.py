"""The generator Philox4x32-10 (Salmon et al., SC 2011) for many seeds at once.

TensorFlow draws with one seed an operation, and for many in a loop, which for the few numbers of a
memory's read costs eight times as much as these integers of all seeds together.
"""

import tensorflow as tf

_MULTIPLIERS, _INCREMENTS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_SCRAMBLING_KEY = 0x3EC8F720, 0x02461E29
_ROUNDS = 10
Words = tuple[tf.Tensor, ...]
"""32-bit words as uint64, which their products need."""


def uniform_uint64(seeds: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """What `tf.random.stateless_uniform` draws from all uint64 with each seed, by alg="philox".

    Args:
        seeds: int64 [n, 2].
        count: int32 scalar, draws with each.

    Returns:
        uint64 [n, count].
    """
    words = tf.cast(tf.bitcast(seeds, tf.uint32), tf.uint64)
    counter = words[:, 0, :1], words[:, 0, 1:], words[:, 1, :1], words[:, 1, 1:]
    key_low, key_high, *start = _philox(counter, tuple(map(_word, _SCRAMBLING_KEY)))
    block = tf.cast(tf.range((count + 1) // 2), tf.uint64)[None]
    low, high, *second = _philox((block, tf.zeros_like(block), *start), (key_low, key_high))
    draws = tf.stack([_joined(low, high), _joined(*second)], axis=-1)
    return tf.reshape(draws, [tf.shape(seeds)[0], -1])[:, :count]


def _philox(counter: Words, key: Words) -> Words:
    for _ in range(_ROUNDS):
        first, second = (counter[i] * _word(_MULTIPLIERS[i // 2]) for i in (0, 2))
        counter = (
            _high(second) ^ counter[1] ^ key[0],
            _low(second),
            _high(first) ^ counter[3] ^ key[1],
            _low(first),
        )
        key = tuple(_low(k + _word(more)) for k, more in zip(key, _INCREMENTS, strict=True))
    return counter


def _word(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def _low(product: tf.Tensor) -> tf.Tensor:
    return product & _word(2**32 - 1)


def _high(product: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(product, _word(32))


def _joined(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return low | tf.bitwise.left_shift(high, _word(32))
