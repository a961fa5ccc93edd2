"""Replacements of the operations of TensorFlow that LiteRT lacks, a function each."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.device_file import rows, windows, words
from nccl_tf.device_file.unsupported import UnsupportedError
from nccl_tf.device_file.words import Words

Replacement = Callable[[Any, Sequence[Any]], "list[Any] | None"]
"""From an operation and its inputs, tensors or `Words`, to outputs; None where LiteRT has it."""
REPLACEMENTS: dict[str, Replacement] = {}
"""By the operation's type."""


def replaces(*kinds: str) -> Callable[[Replacement], Replacement]:
    """List a function as the replacement of operations."""

    def add(function: Replacement) -> Replacement:
        REPLACEMENTS.update(dict.fromkeys(kinds, function))
        return function

    return add


def static(tensor: Any, op: Any) -> np.ndarray:
    """The value of a tensor that a graph knows.

    Raises:
        UnsupportedError: It does not.
    """
    value = tf.get_static_value(tensor)
    if value is None:
        raise UnsupportedError(op, "with a shape that is not fixed")
    return np.asarray(value)


# ---- arithmetic --------------------------------------------------------------------------------


@replaces("ReluGrad")
def relu_gradient(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient, where the relu is above 0."""
    return [tf.where(ins[1] > 0, ins[0], tf.zeros_like(ins[0]))]


@replaces("Relu6Grad")
def relu6_gradient(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient, where the relu is above 0 and below 6."""
    return [tf.where((ins[1] > 0) & (ins[1] < 6), ins[0], tf.zeros_like(ins[0]))]


@replaces("EluGrad")
def elu_gradient(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient through an elu, by its outputs."""
    return [tf.where(ins[1] < 0, ins[0] * (ins[1] + 1.0), ins[0])]


@replaces("SeluGrad")
def selu_gradient(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient through a selu, by its outputs."""
    slope = tf.where(ins[1] < 0, ins[1] + _SELU_SCALE * _SELU_ALPHA, _SELU_SCALE)
    return [ins[0] * slope]


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


@replaces("LeakyReluGrad")
def leaky_relu_gradient(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient, where a leaky relu is above 0, and its share elsewhere."""
    return [tf.where(ins[1] > 0, ins[0], ins[0] * op.get_attr("alpha"))]


@replaces("SoftplusGrad")
def softplus_gradient(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient through a softplus."""
    return [ins[0] * tf.sigmoid(ins[1])]


@replaces("SoftsignGrad")
def softsign_gradient(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient through a softsign."""
    return [ins[0] / tf.square(1.0 + tf.abs(ins[1]))]


@replaces("ArgMax")
def arg_max(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """The first largest entry, of int64 too, in the dtype that was asked for."""
    values, axis = ins[0], int(static(ins[1], op))
    wanted = op.get_attr("output_type")
    if values.dtype == tf.int64:
        largest = tf.equal(values, tf.reduce_max(values, axis=axis, keepdims=True))
        values = tf.cast(largest, tf.int32)
    elif wanted == tf.int32:
        return None
    return [tf.cast(tf.argmax(values, axis, tf.int32), wanted)]


@replaces("Relu", "Relu6")
def relu(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """Values of at least 0, and at most 6."""
    if not _is_of_a_product(ins[0]):
        return None
    positive = _at_least(ins[0], tf.zeros([], ins[0].dtype))
    return [positive if op.type == "Relu" else _at_most(positive, tf.constant(6, ins[0].dtype))]


@replaces("Maximum", "Minimum")
def extreme(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """The larger or the smaller one of two numbers with a sign."""
    if any(isinstance(each, Words) for each in ins):
        return None
    values, bound = ins if tf.get_static_value(ins[0]) is None else ins[::-1]
    return [_at_least(values, bound) if op.type == "Maximum" else _at_most(values, bound)]


@replaces("ClipByValue")
def clip(op: Any, ins: Sequence[Any]) -> list[Any]:
    """Values between two others."""
    return [_at_most(_at_least(ins[0], ins[1]), ins[2])]


_PRODUCTS = "MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"


def _is_of_a_product(tensor: Any) -> bool:
    """Whether a tensor is a product of matrices, and operations of constants on it.

    The converter fuses a bound, such as that of a relu, with a product that it finds before it,
    and loses the bound where both matrices are read from variables. On its way there it passes
    reshapes, transposes and sums with zeros, so that what has one input counts.
    """
    while tensor.op.type not in _PRODUCTS:
        moving = [each for each in tensor.op.inputs if tf.get_static_value(each) is None]
        if len(moving) != 1:
            return False
        tensor = moving[0]
    return True


def _at_least(values: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
    if tf.get_static_value(bound) is not None and _is_of_a_product(values):
        return tf.where(values < bound, bound, values)
    return tf.maximum(values, bound)


def _at_most(values: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
    if tf.get_static_value(bound) is not None and _is_of_a_product(values):
        return tf.where(values > bound, bound, values)
    return tf.minimum(values, bound)


@replaces("FloorDiv")
def floor_division(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """The quotient of int64, by rounded quotients of what is left, which are exact in the end."""
    dividend, divisor = ins
    if dividend.dtype != tf.int64:
        return None
    left = dividend - tf.math.floormod(dividend, divisor)
    quotient = tf.zeros_like(left + divisor)
    for _ in range(4):  # A quotient of float32 has 24 bits of 64.
        part = tf.round(tf.cast(left, tf.float32) / tf.cast(divisor, tf.float32))
        part = tf.cast(part, tf.int64)
        quotient, left = quotient + part, left - part * divisor
    return [quotient]


@replaces("Erf", "Erfc")
def error_function(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The error function, or one minus it, by the rational function of Eigen's float32."""
    x = tf.minimum(tf.maximum(ins[0], -4.0), 4.0)
    square = tf.square(x)
    above = _polynomial(square, _ERF_ABOVE) * x
    found = above / _polynomial(square, _ERF_BELOW)
    return [found if op.type == "Erf" else 1.0 - found]


_ERF_ABOVE = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_BELOW = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
    -1.42647390514189e-02,
)  # fmt: skip


def _polynomial(x: tf.Tensor, coefficients: Sequence[float]) -> tf.Tensor:
    total = tf.fill(x.shape, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


@replaces("LowerBound", "UpperBound")
def bound(op: Any, ins: Sequence[Any]) -> list[Any]:
    """How many of the sorted numbers of a row are below a value, or not above it."""
    numbers, values = ins[0][:, None, :], ins[1][:, :, None]
    is_before = numbers < values if op.type == "LowerBound" else numbers <= values
    return [tf.reduce_sum(tf.cast(is_before, op.get_attr("out_type")), axis=2)]


@replaces("Unpack", "Split")
def parts(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """The slices or equal parts of a tensor along an axis, of int64 too."""
    unpacks = op.type == "Unpack"
    value = ins[0] if unpacks else ins[1]
    if value.dtype != tf.int64:
        return None
    axis = op.get_attr("axis") if unpacks else int(static(ins[0], op))
    count = op.get_attr("num") if unpacks else op.get_attr("num_split")
    places = np.arange(value.shape[axis]).reshape(count, -1)
    if unpacks:
        places = places[:, 0]
    return [tf.gather(value, tf.constant(each, tf.int32), axis=axis) for each in places]


@replaces("EnsureShape")
def ensure_shape(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The tensor, whose shape is fixed here.

    Raises:
        UnsupportedError: It is another one.
    """
    if not ins[0].shape.is_compatible_with(op.get_attr("shape")):
        raise UnsupportedError(op, f"of the shape {op.get_attr('shape')}, here {ins[0].shape}")
    return [ins[0]]


@replaces("Shape", "ShapeN")
def shape(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """Shapes, which are fixed, as constants."""
    shapes = [part.low.shape if isinstance(part, Words) else part.shape for part in ins]
    if not all(each.is_fully_defined() for each in shapes):
        return None
    return [tf.constant(each.as_list(), op.get_attr("out_type")) for each in shapes]


# ---- rows of tensors and lists -----------------------------------------------------------------


@replaces("TensorScatterUpdate")
def scatter_update(op: Any, ins: Sequence[Any]) -> list[Any]:
    """Rows written; of equal indices the last one is.

    Raises:
        UnsupportedError: Entries within rows are written.
    """
    return [rows.with_rows(ins[0], _row_numbers(op, ins[1]), ins[2])]


@replaces("TensorScatterAdd")
def scatter_add(op: Any, ins: Sequence[Any]) -> list[Any]:
    """Rows added; of equal indices all are.

    Raises:
        UnsupportedError: Something is added within rows.
    """
    return [rows.with_sums(ins[0], _row_numbers(op, ins[1]), ins[2])]


@replaces("UnsortedSegmentSum")
def segment_sum(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """Sums of the rows of segments, as the gradient of a gather has them."""
    if ins[0].dtype != tf.float32 or ins[1].shape.rank != 1:
        return None
    return [rows.segment_sums(ins[0], ins[1], int(static(ins[2], op)))]


def _row_numbers(op: Any, indices: tf.Tensor) -> tf.Tensor:
    if indices.shape[-1] != 1:
        raise UnsupportedError(op, "within rows")
    return tf.squeeze(indices, -1)


@replaces("TensorListReserve")
def list_reserve(op: Any, ins: Sequence[Any]) -> list[Any]:
    """A list of tensors of one shape, as one tensor with a further first axis.

    Raises:
        UnsupportedError: The shape is not fixed.
    """
    entry, count = static(ins[0], op), int(static(ins[1], op))
    sides = [int(side) for side in entry.ravel()]
    if min(sides, default=0) < 0:
        raise UnsupportedError(op, "with a shape that is not fixed")
    return [tf.zeros([count, *sides], op.get_attr("element_dtype"))]


@replaces("TensorListSetItem")
def list_set(op: Any, ins: Sequence[Any]) -> list[Any]:
    """A list with another entry."""
    return [rows.with_rows(ins[0], tf.reshape(ins[1], [1]), ins[2][None])]


@replaces("TensorListGetItem")
def list_get(op: Any, ins: Sequence[Any]) -> list[Any]:
    """An entry of a list."""
    return [tf.gather(ins[0], ins[1])]


@replaces("TensorListStack", "TensorListFromTensor")
def list_stack(op: Any, ins: Sequence[Any]) -> list[Any]:
    """A list as a tensor, and back."""
    return [ins[0]]


# ---- convolutions and pooling ------------------------------------------------------------------


@replaces("Conv2DBackpropFilter")
def conv_filter(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient of a convolution by its filter.

    Raises:
        UnsupportedError: It has several groups, or as for `windows_of`.
    """
    images, sizes, flow = ins
    sides = static(sizes, op)
    if sides[2] != images.shape[3]:
        raise UnsupportedError(op, "of several groups of channels")
    laid = windows.windows_of(op, images.shape[1:3], flow.shape[1:3], sides[:2])
    return [windows.conv_filter_gradient(images, flow, laid)]


@replaces("DepthwiseConv2dNativeBackpropFilter")
def depthwise_filter(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient of a depthwise convolution by its filter."""
    images, sizes, flow = ins
    laid = windows.windows_of(op, images.shape[1:3], flow.shape[1:3], static(sizes, op)[:2])
    return [windows.depthwise_filter_gradient(images, flow, laid)]


@replaces("DepthwiseConv2dNativeBackpropInput")
def depthwise_input(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient of a depthwise convolution by its images."""
    sizes, kernel, flow = ins
    laid = windows.windows_of(op, static(sizes, op)[1:3], flow.shape[1:3], kernel.shape[:2])
    return [windows.depthwise_input_gradient(kernel, flow, laid)]


@replaces("MaxPoolGrad")
def max_pool(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient of max pooling."""
    images, maxima, flow = ins
    sides = op.get_attr("ksize")[1:3]
    laid = windows.windows_of(op, images.shape[1:3], flow.shape[1:3], sides)
    return [windows.max_pool_gradient(images, maxima, flow, laid)]


@replaces("AvgPoolGrad")
def average_pool(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The gradient of average pooling."""
    sizes, flow = ins
    sides = op.get_attr("ksize")[1:3]
    laid = windows.windows_of(op, static(sizes, op)[1:3], flow.shape[1:3], sides)
    return [windows.average_pool_gradient(flow, laid)]


# ---- draws and unsigned integers ---------------------------------------------------------------


@replaces("StatelessRandomGetKeyCounter")
def key_and_counter(op: Any, ins: Sequence[Any]) -> list[Any]:
    """Key and counter of a seed."""
    return list(words.key_and_counter(ins[0]))


_PHILOX = 1, 3
"""By its name, and as TensorFlow's own choice, which it is on processors."""


@replaces("StatelessRandomUniformFullIntV2", "StatelessRandomUniformV2")
def draws(op: Any, ins: Sequence[Any]) -> list[Any]:
    """Draws of Philox: integers of all bits, or float32 in [0, 1).

    Raises:
        UnsupportedError: They are of another dtype, or by another generator.
    """
    wanted, key, counter = op.get_attr("dtype"), ins[1], ins[2]
    if not isinstance(key, Words) or int(static(ins[3], op)) not in _PHILOX:
        raise UnsupportedError(op, "by another generator than Philox")
    is_float = op.type == "StatelessRandomUniformV2"
    if wanted not in ((tf.float32,) if is_float else (tf.uint32, tf.uint64, tf.int32, tf.int64)):
        raise UnsupportedError(op, f"of {wanted.name}")
    sides = [int(side) for side in static(ins[0], op)]
    drawn = words.bits(key, counter, math.prod(sides), 8 * wanted.size)
    drawn = drawn.map(lambda part: tf.reshape(part, sides))
    if is_float:
        return [words.unit_floats(drawn)]
    return [words.as_signed(drawn, wanted) if wanted in (tf.int32, tf.int64) else drawn]


_TO_SIGNED = ((tf.uint64, tf.int64), (tf.uint32, tf.int32), (tf.uint32, tf.int64))


@replaces("Cast")
def cast(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """A cast from or to unsigned integers of 32 and 64 bits.

    Raises:
        UnsupportedError: It is one from or to floats, or between these sizes and others.
    """
    before, after = op.get_attr("SrcT"), op.get_attr("DstT")
    if after in (tf.uint32, tf.uint64):
        sizes = {tf.uint64: (tf.int64, tf.int32), tf.uint32: (tf.int32,)}[after]
        if before == tf.uint32:
            return [words.widened(ins[0]) if after == tf.uint64 else ins[0]]
        if before in sizes:
            value = tf.cast(ins[0], tf.int64) if after == tf.uint64 else ins[0]
            return [words.of_signed(value)]
    elif (before, after) in _TO_SIGNED:
        return [words.as_signed(ins[0], after)]
    elif before not in (tf.uint32, tf.uint64):
        return None
    raise UnsupportedError(op, f"from {before.name} to {after.name}")


@replaces("FloorMod")
def floor_mod(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """The remainder of uint64 by a divisor below 2^31."""
    if not isinstance(ins[0], Words):
        return None
    return [words.of_signed(words.remainder(ins[0], words.as_signed(ins[1], tf.int64)))]


@replaces("RightShift")
def right_shift(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """uint32 without its lowest bits."""
    if not isinstance(ins[0], Words):
        return None
    by = words.static(ins[1])
    if ins[0].high is not None or by is None or not set(by.ravel()) <= set(range(1, 32)):
        raise UnsupportedError(op, "of uint64, or by a number of bits that is not fixed")
    return [words.shifted_right(ins[0], int(by.ravel()[0]))]


@replaces("LeftShift")
def left_shift(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """uint64 moved by a word.

    Raises:
        UnsupportedError: By another number of bits.
    """
    if not isinstance(ins[0], Words):
        return None
    by = words.static(ins[1])
    if ins[0].high is None or by is None or set(by.ravel()) != {32}:
        raise UnsupportedError(op, "by other than 32 bits of 64")
    return [words.moved_up(ins[0])]


@replaces("BitwiseAnd")
def sign_or_low_bits(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The sign of int32, by which Keras tells -0.0 from 0.0, or its lowest bits.

    Raises:
        UnsupportedError: Other bits are asked for.
    """
    mask = None if isinstance(ins[1], Words) else tf.get_static_value(ins[1])
    if mask is not None and ins[0].dtype == tf.int32 and len(set(np.ravel(mask))) == 1:
        one = int(np.ravel(mask)[0])
        if one == -(2**31):
            return [tf.where(ins[0] < 0, tf.constant(one, tf.int32), 0)]
        if one > 0 and one & (one + 1) == 0 and one < 2**30:
            return [tf.math.floormod(ins[0], one + 1)]
    raise UnsupportedError(op, "of other bits than a sign or the lowest ones")


@replaces("BitwiseOr")
def either(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The bits of two integers, of which each word is 0 in one.

    Raises:
        UnsupportedError: They have bits of one word both.
    """
    if isinstance(ins[0], Words) and (both := words.united(*ins)) is not None:
        return [both]
    raise UnsupportedError(op, "of integers with bits in one word")


@replaces("Bitcast")
def bitcast(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """The bits of integers in another dtype."""
    before, after = op.get_attr("T"), op.get_attr("type")
    if before == tf.uint32 and after == tf.uint64:
        return [words.joined(ins[0])]
    if before == tf.uint64 and after == tf.uint32:
        return [words.halves(ins[0])]
    if {before, after} <= {tf.uint32, tf.int32} or {before, after} <= {tf.uint64, tf.int64}:
        is_words = isinstance(ins[0], Words)
        return [words.as_signed(ins[0], after) if is_words else words.of_signed(ins[0])]
    return None


@replaces("Const")
def constant(op: Any, ins: Sequence[Any]) -> list[Any] | None:
    """A constant of unsigned integers."""
    if op.get_attr("dtype") not in (tf.uint32, tf.uint64):
        return None
    return [words.constant(tf.make_ndarray(op.get_attr("value")))]
