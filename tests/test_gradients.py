import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf import gradients, xla


def random_lists(seed, shapes, dtype):
    rng = np.random.default_rng(seed)
    return [[tf.constant(rng.normal(size=s), dtype) for s in shapes] for _ in range(2)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_inner_product_is_that_of_the_concatenation(seed, sizes):
    left, right = random_lists(seed, [(n, 3) for n in sizes], tf.float64)
    flat = [np.concatenate([np.ravel(g) for g in part]) for part in (left, right)]
    np.testing.assert_allclose(gradients.inner_product(left, right), flat[0] @ flat[1], atol=1e-12)
    np.testing.assert_allclose(gradients.squared_norm(left), flat[0] @ flat[0], atol=1e-12)


def test_float32_and_float64_agree():
    left, right = random_lists(0, [(784, 256), (256,)], tf.float64)
    single = [[tf.cast(g, tf.float32) for g in part] for part in (left, right)]
    scale = float(tf.sqrt(gradients.squared_norm(left) * gradients.squared_norm(right)))
    difference = gradients.inner_product(*single) - tf.cast(
        gradients.inner_product(left, right), tf.float32
    )
    assert abs(float(difference)) < 1e-4 * scale


@pytest.mark.parametrize("compiled", [True, False])
def test_sums_in_a_program_of_xla_are_the_same(compiled):
    left, right = random_lists(1, [(7, 5), (5,), (3, 2, 4), ()], tf.float64)

    @tf.function(jit_compile=compiled, autograph=False)
    def sums(left, right):
        with xla.program():
            return gradients.inner_product(left, right), gradients.squared_norm(left)

    expected = gradients.inner_product(left, right), gradients.squared_norm(left)
    np.testing.assert_allclose(sums(left, right), expected, rtol=1e-12)
    assert not xla.in_program()


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_shows_in_the_norm_of_a_program(value):
    gradient = np.zeros((4, 3), np.float32)
    gradient[2, 1] = value

    @tf.function(jit_compile=True, autograph=False)
    def norm(gradient):
        with xla.program():
            return gradients.squared_norm([gradient])

    assert not np.isfinite(norm(tf.constant(gradient)))


def test_low_precision_is_accumulated_in_float32():
    ones = [tf.ones([4096], tf.bfloat16)]
    product = gradients.inner_product(ones, ones)
    assert product.dtype == tf.float32 and float(product) == 4096.0


def test_weighted_sum():
    (total,) = gradients.weighted_sum(
        tf.constant(2.0), [tf.constant([1.0, 2.0])], tf.constant(-1.0), [tf.constant([3.0, 5.0])]
    )
    assert total.numpy().tolist() == [-1.0, -1.0]
