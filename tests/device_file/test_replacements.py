"""What stands for an operation gives in LiteRT what TensorFlow's gives."""

import functools
import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.device_file.replacements import REPLACEMENTS
from nccl_tf.device_file.unsupported import UnsupportedError
from tests.device_file.lite import Lite

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(3, 7, 6, 4)).astype(np.float32)
TIES = RANDOM.integers(0, 2, (3, 7, 6, 4)).astype(np.float32)
"""Images in which most windows have several equal maxima."""


def agrees(function, *args, atol=0.0, without=()):
    """That LiteRT gives what TensorFlow gives, without operations."""
    specs = [tf.TensorSpec(arg.shape, arg.dtype, name=f"a{i}") for i, arg in enumerate(args)]
    lite = Lite(function, *specs)
    wanted = function(*map(tf.constant, args)).numpy()
    np.testing.assert_allclose(lite(*args), wanted, rtol=0, atol=atol)
    assert not set(without) & set(lite.file.operations)
    return wanted


def gradient_of(function, which=0):
    """The gradient of a sum with weights, by an argument."""

    def gradient(*args):
        with tf.GradientTape() as tape:
            tape.watch(args[which])
            outputs = function(*args)
            size = int(np.prod(outputs.shape))
            scale = tf.reshape(tf.range(1, size + 1, dtype=tf.float32) / size, outputs.shape)
            total = tf.reduce_sum(outputs * scale)
        return tf.convert_to_tensor(tape.gradient(total, args[which]))

    return gradient


WINDOWS = [(side, stride, pad) for side in (2, 3) for stride in (1, 2) for pad in ("SAME", "VALID")]


@pytest.mark.parametrize(("side", "stride", "padding"), WINDOWS)
def test_gradients_of_convolutions_by_their_filters(side, stride, padding):
    kernel = RANDOM.normal(size=(side, side, 4, 5)).astype(np.float32)
    gradient = gradient_of(lambda x, k: tf.nn.conv2d(x, k, stride, padding), 1)
    agrees(gradient, IMAGES, kernel, atol=1e-5)


@pytest.mark.parametrize(("side", "stride", "padding"), WINDOWS)
@pytest.mark.parametrize("which", [0, 1])
def test_gradients_of_depthwise_convolutions(side, stride, padding, which):
    kernel = RANDOM.normal(size=(side, side, 4, 2)).astype(np.float32)
    strides = [1, stride, stride, 1]
    gradient = gradient_of(lambda x, k: tf.nn.depthwise_conv2d(x, k, strides, padding), which)
    agrees(gradient, IMAGES, kernel, atol=1e-5)


@pytest.mark.parametrize(("side", "stride", "padding"), WINDOWS)
@pytest.mark.parametrize("images", [IMAGES, TIES, -1 - TIES], ids=["distinct", "ties", "below 0"])
def test_of_equal_pixels_the_first_has_the_gradient_of_max_pooling(side, stride, padding, images):
    gradient = gradient_of(lambda x: tf.nn.max_pool2d(x, side, stride, padding))
    agrees(gradient, images, atol=1e-6)


@pytest.mark.parametrize(("side", "stride", "padding"), WINDOWS)
def test_gradients_of_average_pooling_leave_padding_out(side, stride, padding):
    agrees(gradient_of(lambda x: tf.nn.avg_pool2d(x, side, stride, padding)), IMAGES, atol=1e-6)


def test_a_relu_passes_what_flows_back_where_it_is_above_zero():
    values = np.array([-1, 0, 2, np.nan], np.float32)
    wanted = agrees(gradient_of(tf.nn.relu), values)
    np.testing.assert_allclose(wanted[:3], [0, 0, 0.75])


def test_a_relu_with_an_end_passes_what_is_between():
    wanted = agrees(gradient_of(tf.nn.relu6), np.array([-1, 0, 2, 6, 7], np.float32))
    assert np.flatnonzero(wanted).tolist() == [2]


BOUNDS = {
    "relu": tf.nn.relu,
    "relu of a bias of zeros": lambda x: tf.nn.relu(x + tf.zeros([5])),
    "relu of a turned one": lambda x: tf.nn.relu(tf.transpose(x)),
    "relu6": tf.nn.relu6,
    "clip": lambda x: tf.clip_by_value(x, -1, 1),
    "maximum": lambda x: tf.maximum(0.0, x),
    "minimum": lambda x: tf.minimum(tf.maximum(tf.reshape(x, [15]), 0.0), 1.0),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_of_a_product_is_kept(bound):
    """The converter drops it where both matrices are variables."""
    matrices = [RANDOM.normal(0, 4, size).astype(np.float32) for size in ((3, 4), (4, 5))]
    function = BOUNDS[bound]
    wanted = agrees(lambda one, other: function(one @ other), *matrices, atol=1e-5)
    assert -1 <= wanted.min() < wanted.max()
    matrices[0][1] = np.nan
    agrees(lambda one, other: function(one @ other), *matrices, atol=1e-5)


ACTIVATIONS = (
    "celu", "elu", "exponential", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu",
    "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softmax",
    "softplus", "softsign", "squareplus", "tanh", "tanh_shrink",
)  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_and_what_flows_back_through_it(name):
    function = keras.activations.get(name)
    gradient = gradient_of(function)
    values = np.linspace(-9, 9, 40).astype(np.float32).reshape(4, 10)
    scale = np.abs(function(values)).max()
    agrees(lambda x: tf.stack([function(x), gradient(x)]), values, atol=1e-6 * scale)


def test_dropout_draws_as_in_keras():
    lite = Lite(
        lambda a0: tf.nn.experimental.stateless_dropout(a0, 0.3, seed=[3, 4]),
        tf.TensorSpec([50], tf.float32),
    )
    ones = np.ones(50, np.float32)
    wanted = tf.nn.experimental.stateless_dropout(ones, 0.3, seed=[3, 4])
    np.testing.assert_array_equal(lite(ones), wanted)


def test_the_error_function_and_what_gelu_makes_of_it():
    values = np.linspace(-9, 9, 400).astype(np.float32)

    def gelu(x):
        return keras.activations.gelu(x, approximate=False)

    agrees(gelu, values, atol=1e-6)
    agrees(gradient_of(gelu), values, atol=1e-6)
    agrees(tf.math.erf, values, atol=1e-6)


def test_the_first_of_equal_numbers_is_the_largest():
    for dtype in (np.int64, np.int32, np.float32):
        agrees(lambda x: tf.argmax(x, axis=1), np.array([[3, 9, 9], [-4, -5, -4]], dtype))
    agrees(tf.argmax, np.array([2**40, 2**40 + 1, 2**40 + 1]))


def test_quotients_of_large_integers_are_exact():
    dividends = np.array([7, -7, 7, -7, 2**62 + 1, 2**53 + 1, -(2**62), 0, 2**40], np.int64)
    divisors = np.array([2, 2, -2, -2, 3, 1, 7, 5, 2**40 - 1], np.int64)
    wanted = agrees(lambda a, b: a // b, dividends, divisors)
    np.testing.assert_array_equal(wanted, dividends // divisors)


def test_numbers_are_cut_unpacked_and_counted():
    numbers = np.array([-3, 0, 4, 9], np.int64)
    agrees(lambda x: tf.clip_by_value(x, 0, 5), numbers)
    agrees(lambda x: tf.stack(tf.unstack(x)[::-1]), numbers)
    agrees(lambda x: tf.stack(tf.unstack(tf.reshape(x, [2, 2]), axis=1)[::-1]), numbers)
    for side in ("left", "right"):
        places = functools.partial(tf.searchsorted, tf.constant([0, 0, 4, 5], tf.int64), side=side)
        agrees(places, numbers)
    agrees(lambda x: tf.ensure_shape(x, [None]) + tf.size(x, tf.int64), numbers)


def test_bits_of_a_sign_and_the_lowest_ones():
    numbers = np.array([-(2**31), -1, 0, 5, 2**31 - 1], np.int32)
    for mask in (-(2**31), 1, 255):
        agrees(lambda x, mask=mask: tf.bitwise.bitwise_and(x, mask), numbers)
    zeros = np.array([[0.0, -0.0, 0.0], [-0.0, 0.0, -1.0]], np.float32)
    agrees(lambda x: keras.ops.argmax(x, axis=1), zeros)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_of_equal_indices_the_last_row_is_written(dtype):
    value = np.arange(12).reshape(4, 3).astype(dtype)
    rows = np.array([[50, 51, 52], [60, 61, 62], [70, 71, 72]], dtype)
    indices = np.array([[3], [1], [3]], np.int64)

    def written(value, indices, rows):
        return tf.tensor_scatter_nd_update(value, indices, rows)

    wanted = agrees(written, value, indices, rows, without=["SCATTER_ND"])
    np.testing.assert_array_equal(wanted[[0, 1, 2, 3]], [value[0], rows[1], value[2], rows[2]])


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_of_equal_indices_all_rows_are_added(dtype):
    value = np.arange(12).reshape(4, 3).astype(dtype)
    rows = np.ones((3, 3), dtype)
    indices = np.array([[3], [1], [3]], np.int64)
    wanted = agrees(tf.tensor_scatter_nd_add, value, indices, rows)
    np.testing.assert_array_equal(wanted[3], value[3] + 2)


def test_rows_that_a_gather_takes_twice_get_both_gradients():
    indices = tf.constant([1, 1, 3])
    agrees(gradient_of(lambda x: tf.gather(x, indices) ** 2), IMAGES[0], atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "ins", "attributes"),
    [
        ("BitwiseOr", [tf.constant(1), tf.constant(2)], {}),
        ("TensorScatterUpdate", [tf.zeros([2, 2]), tf.zeros([1, 2], tf.int32), tf.zeros([1])], {}),
        ("EnsureShape", [tf.zeros([2])], {"shape": tf.TensorShape([3])}),
        (
            "Conv2DBackpropFilter",
            [tf.zeros([1, 4, 4, 4]), tf.constant([2, 2, 2, 4]), tf.zeros([1, 3, 3, 4])],
            {},
        ),
    ],
)
def test_what_has_no_replacement_is_named(kind, ins, attributes):
    op = SimpleNamespace(type=kind, name=f"a/{kind}", get_attr=attributes.__getitem__)
    with pytest.raises(UnsupportedError, match=re.escape(kind)) as caught:
        REPLACEMENTS[kind](op, ins)
    assert caught.value.name == f"a/{kind}"


@pytest.mark.parametrize("groups", [1, 2])
def test_a_dilated_convolution_is_refused(groups):
    kernel = RANDOM.normal(size=(2, 2, 4, 4)).astype(np.float32)
    gradient = gradient_of(lambda x, k: tf.nn.conv2d(x, k, 1, "VALID", dilations=2), 1)
    with pytest.raises(UnsupportedError, match="dilated"):
        agrees(gradient, IMAGES, kernel)
