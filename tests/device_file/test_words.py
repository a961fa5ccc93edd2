"""Philox and unsigned integers: the bits of TensorFlow, in LiteRT too."""

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf import rng
from nccl_tf.device_file import words
from tests.device_file.lite import Lite

SEED = tf.TensorSpec([2], tf.int64)
SEEDS = ((0, 0), (1, 5), (2**32 + 5, 7), (-1, -9), (2**31, 2**31), (-(2**63), 2**63 - 1))
"""Narrow and wide ones, with the sign of either word."""


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: rng.uniform_below(
            seed, tf.constant([1, 2, 3, 10, 60_000, 7, 2**31 - 1], tf.int64)
        ),
        lambda seed: rng.uniform_below(
            tf.stack([tf.constant(3, tf.int64), seed[1]]), tf.constant([9, 10], tf.int64)
        ),
        lambda seed: rng.random_order(seed, tf.constant([1.0, 1, 0, 1, 1, 0, 1])),
        lambda seed: tf.random.stateless_uniform([3, 5], seed, alg="philox"),
        lambda seed: tf.random.stateless_uniform(
            [9], seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
        ),
    ],
    ids=["wide", "narrow", "order", "floats", "int32"],
)
def test_draws_are_those_of_tensorflow(draw):
    lite = Lite(draw, SEED)
    for seed in np.array(SEEDS, np.int64):
        np.testing.assert_array_equal(lite(seed), draw(tf.constant(seed)).numpy())


def test_normal_draws_agree_up_to_the_rounding_of_functions():
    def draw(seed):
        return rng.standard_normal(seed, 9, "float32")

    lite = Lite(draw, SEED)
    for seed in np.array(SEEDS, np.int64):
        np.testing.assert_allclose(lite(seed), draw(tf.constant(seed)).numpy(), atol=1e-6)


def test_unsigned_integers_keep_their_bits():
    values = np.array([0, 1, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1], np.uint64)
    held = words.constant(values)
    np.testing.assert_array_equal(words.as_signed(held, tf.int64).numpy().view(np.uint64), values)
    again = words.joined(words.halves(held))
    np.testing.assert_array_equal(again.low, held.low)
    np.testing.assert_array_equal(again.high, held.high)
    divisors = np.array([1, 2, 10, 60_000, 7, 2**31 - 1, 2**31 - 2], np.int64)
    found = words.remainder(held, tf.constant(divisors)).numpy()
    np.testing.assert_array_equal(found, (values % divisors.astype(np.uint64)).astype(np.int64))


@pytest.mark.parametrize("bits", [1, 8, 31])
def test_a_shift_of_unsigned_integers_repeats_no_sign(bits):
    values = np.array([0, 5, 2**31 - 1, 2**31, 2**32 - 1], np.uint32)
    found = words.shifted_right(words.constant(values), bits)
    np.testing.assert_array_equal(found.low.numpy().view(np.uint32), values >> bits)


def test_a_counter_carries_into_its_high_word():
    key, counter = words.constant(np.array([9], np.uint64)), np.array([2**32 - 1, 3], np.uint64)
    wanted = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[12], key=tf.constant([9], tf.uint64), counter=tf.constant(counter), alg=1,
        dtype=tf.uint32,
    )  # fmt: skip
    found = words.bits(key, words.constant(counter), 12, 32)
    np.testing.assert_array_equal(found.low.numpy().view(np.uint32), wanted.numpy())
