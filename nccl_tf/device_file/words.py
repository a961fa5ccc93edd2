"""Unsigned integers and Philox's draws, with the signed integers that LiteRT has."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
_SCRAMBLING_KEY = 0x3EC8F720, 0x02461E29
_ROUNDS = 10
_SIZE = 2**32


class Words(NamedTuple):
    """Unsigned integers as words of 32 bits, each an int32 of the same bits.

    Attributes:
        low: int32 [...], the low words.
        high: int32 [...], the high words of 64 bits; None for integers of 32 bits.
    """

    low: tf.Tensor
    high: Any = None

    def map(self, function: Callable[[tf.Tensor], tf.Tensor]) -> "Words":
        """Apply a function that only moves entries."""
        return Words(function(self.low), None if self.high is None else function(self.high))


def constant(values: np.ndarray) -> Words:
    """An array in uint32 or uint64."""
    if values.dtype == np.uint32:
        return Words(tf.constant(values.view(np.int32)))
    low, high = (values & np.uint64(_SIZE - 1)), values >> np.uint64(32)
    return Words(*(tf.constant(part.astype(np.uint32).view(np.int32)) for part in (low, high)))


def of_signed(values: tf.Tensor) -> Words:
    """The bits of int64 as those of uint64, or of int32 as those of uint32."""
    if values.dtype == tf.int32:
        return Words(values)
    parts = _words_of(values)
    return Words(parts[..., 0], parts[..., 1])


def as_signed(values: Words, dtype: tf.DType) -> tf.Tensor:
    """The bits of uint64 as those of int64; numbers of 32 bits in int32 or int64.

    Args:
        values: Unsigned integers.
        dtype: int64, or int32 for numbers of 32 bits, of which it keeps the bits.
    """
    if values.high is None:
        return values.low if dtype == tf.int32 else unsigned(values.low)
    return tf.bitcast(tf.stack([values.low, values.high], axis=-1), tf.int64)


def widened(values: Words) -> Words:
    """uint32 as uint64."""
    return Words(values.low, tf.zeros(values.low.shape, tf.int32))


def moved_up(values: Words) -> Words:
    """uint64 times 2^32, whose high words are lost."""
    return Words(tf.zeros(values.low.shape, tf.int32), values.low)


def united(one: Words, other: Words) -> Words | None:
    """The bits of both, where each word is known to be 0 in one of them; else None."""
    parts = []
    for a, b in zip(one, other, strict=True):
        if a is None or b is None:
            return None
        if _is_zero(a):
            parts.append(b)
        elif _is_zero(b):
            parts.append(a)
        else:
            return None
    return Words(*parts)


def static(values: Words) -> np.ndarray | None:
    """Unsigned integers below 2^32 that the graph knows: their values."""
    value = tf.get_static_value(values.low)
    known = values.high is None or _is_zero(values.high)
    return value if known and value is not None else None


def _is_zero(word: tf.Tensor) -> bool:
    value = tf.get_static_value(word)
    return value is not None and not np.any(value)


def halves(values: Words) -> Words:
    """uint64 [...] as uint32 [..., 2], the low word first."""
    return Words(tf.stack([values.low, values.high], axis=-1))


def joined(values: Words) -> Words:
    """uint32 [..., 2], the low word first, as uint64 [...]."""
    return Words(values.low[..., 0], values.low[..., 1])


def unsigned(words: tf.Tensor) -> tf.Tensor:
    """int64 of words of 32 bits that int32 holds."""
    wide = tf.cast(words, tf.int64)
    return tf.where(wide < _wide(0), wide + _wide(_SIZE), wide)


def shifted_right(values: Words, bits: int) -> Words:
    """uint32 without its lowest `bits`, at least 1 and at most 31."""
    shifted = tf.bitwise.right_shift(values.low, tf.fill(values.low.shape, bits))
    # The shift of a signed integer repeats its sign.
    negative = tf.where(values.low < 0, 2 ** (31 - bits), 0)
    return Words(shifted + negative + negative)


def remainder(values: Words, divisors: tf.Tensor) -> tf.Tensor:
    """uint64 modulo int64 divisors in [1, 2^31): int64. No number on the way leaves int64."""
    of_word = tf.math.floormod(tf.zeros_like(divisors) + _wide(_SIZE), divisors)
    high = tf.math.floormod(unsigned(values.high), divisors)
    return tf.math.floormod(
        high * of_word + tf.math.floormod(unsigned(values.low), divisors), divisors
    )


def key_and_counter(seed: tf.Tensor) -> tuple[Words, Words]:
    """`StatelessRandomGetKeyCounter` of a seed: key uint64 [1], counter uint64 [2].

    Args:
        seed: int64 or int32 [2].
    """
    seeds = of_signed(tf.cast(tf.reshape(seed, [2]), tf.int64))
    mixed = _blocks(Words(*(tf.constant([_as_int32(key)]) for key in _SCRAMBLING_KEY)), seeds, 1)[0]
    zero = tf.zeros([1], tf.int32)
    counter = Words(tf.concat([zero, mixed[2:3]], 0), tf.concat([zero, mixed[3:4]], 0))
    return Words(mixed[0:1], mixed[1:2]), counter


def bits(key: Words, counter: Words, count: int, size: int) -> Words:
    """`count` draws of Philox4x32-10, the bits of `StatelessRandomUniformFullIntV2`.

    Args:
        key: uint64 [1].
        counter: uint64 [2].
        count: Number of draws.
        size: Bits of each, 32 or 64.
    """
    words = count * (size // 32)
    flat = tf.reshape(_blocks(key, counter, -(-words // 4)), [-1])
    if size == 32:
        return Words(flat[:count])
    pairs = tf.reshape(flat, [-1, 2])
    return Words(pairs[:count, 0], pairs[:count, 1])


def unit_floats(words: Words) -> tf.Tensor:
    """float32 in [0, 1) of uint32, by 23 of its bits, as TensorFlow makes them."""
    one = 127 << 23
    return tf.bitcast(tf.math.floormod(words.low, 2**23) + one, tf.float32) - 1.0


def _blocks(key: Words, counter: Words, count: int) -> tf.Tensor:
    """int32 [count, 4]: the words of so many steps of the counter."""
    index = np.arange(count, dtype=np.int64)
    first, second = counter.low[0], counter.high[0]
    rest = tf.zeros([count], tf.int32)
    if count > 1:
        sums = unsigned(first) + tf.constant(index)
        carried = tf.where(sums >= _wide(_SIZE), _wide(1), _wide(0))
        first, second = _low(sums), _low(unsigned(second) + carried)
    even = tf.stack([first + rest, counter.low[1] + rest], axis=1)
    odd = tf.stack([second + rest, counter.high[1] + rest], axis=1)
    keys = tf.cast(tf.stack([key.low[0], key.high[0]]), tf.int64)
    steps = np.arange(_ROUNDS, dtype=np.int64)[:, None] * np.array([_STEPS], np.int64)
    keys = _low(keys[None, :] + tf.constant(steps))
    even, odd = _rounds(even, odd, keys)
    return tf.stack([even[:, 0], odd[:, 0], even[:, 1], odd[:, 1]], axis=1)


def _rounds(even: tf.Tensor, odd: tf.Tensor, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Ten rounds of Philox (Salmon et al., 2011) on words 0 and 2, and 1 and 3, int32 [n, 2].

    A product of words does not fit into int64. Times the multiplier less 2^32 a word does, and what
    the high word then lacks is the word itself.
    """
    multipliers = tf.constant([m - _SIZE for m in _MULTIPLIERS], tf.int64)
    zeros = tf.zeros_like(even)
    for key in tf.unstack(keys):
        wide = tf.bitcast(tf.stack([even, zeros], axis=-1), tf.int64)
        low, high = tf.unstack(_words_of(wide * multipliers), axis=-1)
        high = _low(tf.cast(high, tf.int64) + wide)
        mixed = tf.bitwise.bitwise_xor(tf.reverse(high, [1]), odd)
        even, odd = tf.bitwise.bitwise_xor(mixed, key), tf.reverse(low, [1])
    return even, odd


def _words_of(values: tf.Tensor) -> tf.Tensor:
    """int64 [...] as int32 [..., 2], the low word first."""
    return tf.bitcast(values, tf.int32)


def _low(values: tf.Tensor) -> tf.Tensor:
    return tf.unstack(_words_of(values), axis=-1)[0]


def _wide(value: int) -> tf.Tensor:
    return tf.constant(value, tf.int64)


def _as_int32(word: int) -> int:
    return word - _SIZE if word >= _SIZE // 2 else word
