"""Gradients of convolutions and pooling, by slices, sums and products of matrices."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from nccl_tf.device_file.unsupported import UnsupportedError


class Windows(NamedTuple):
    """How windows lie on images [n, height, width, channels].

    Attributes:
        sides: Height and width of a window.
        strides: Steps between windows, along both axes.
        before: Rows and columns of padding before an image.
        counts: Windows along both axes.
        image: Height and width of an image.
    """

    sides: tuple[int, int]
    strides: tuple[int, int]
    before: tuple[int, int]
    counts: tuple[int, int]
    image: tuple[int, int]

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width of an image with what windows reach over."""
        ends = zip(self.sides, self.strides, self.counts, self.before, self.image, strict=True)
        height, width = (
            max((count - 1) * stride + side, first + size)
            for side, stride, count, first, size in ends
        )
        return height, width

    def pad(self, images: tf.Tensor, value: float) -> tf.Tensor:
        """Images with padding around them."""
        ends = zip(self.before, self.padded, self.image, strict=True)
        sides = [[first, whole - first - size] for first, whole, size in ends]
        return tf.pad(images, [[0, 0], *sides, [0, 0]], constant_values=value)

    def at(self, padded: tf.Tensor, row: int, column: int) -> tf.Tensor:
        """The pixels at one place of every window: [n, *counts, channels]."""
        ends = zip((row, column), self.counts, self.strides, strict=True)
        rows, columns = (
            slice(start, start + (count - 1) * stride + 1, stride) for start, count, stride in ends
        )
        return padded[:, rows, columns, :]

    @property
    def places(self) -> list[tuple[int, int]]:
        """All places of a window, row by row."""
        return [(i, j) for i in range(self.sides[0]) for j in range(self.sides[1])]

    def spread(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The transpose of `at`, summed over all places: [n, *image, channels].

        Args:
            parts: [n, *counts, channels] for each of `places`.
        """
        total: Any = None
        for (row, column), part in zip(self.places, parts, strict=True):
            sparse = _with_gaps(part, self.strides)
            sides = [
                [start, whole - start - size]
                for start, whole, size in zip(
                    (row, column), self.padded, sparse.shape[1:3], strict=True
                )
            ]
            moved = tf.pad(sparse, [[0, 0], *sides, [0, 0]])
            total = moved if total is None else total + moved
        rows, columns = (
            slice(first, first + size) for first, size in zip(self.before, self.image, strict=True)
        )
        return total[:, rows, columns, :]


def windows_of(op: Any, image: Any, counts: Any, sides: Any) -> Windows:
    """The windows of an operation of convolution or pooling.

    Args:
        op: The operation.
        image: Height and width of its images.
        counts: Those of its outputs.
        sides: Those of a window.

    Raises:
        UnsupportedError: It has channels first, padding in numbers or gaps in its windows.
    """
    strides = [int(v) for v in op.get_attr("strides")[1:3]]
    padding = op.get_attr("padding").decode()
    dilations = list(op.node_def.attr["dilations"].list.i) or [1] * 4
    if op.get_attr("data_format") != b"NHWC" or dilations != [1] * 4:
        raise UnsupportedError(op, "with channels first or dilated windows")
    if padding not in ("SAME", "VALID"):
        raise UnsupportedError(op, f"with the padding {padding}")
    before = [0, 0]
    if padding == "SAME":
        ends = zip(counts, strides, sides, image, strict=True)
        before = [max((n - 1) * s + k - size, 0) // 2 for n, s, k, size in ends]
    pairs = (sides, strides, before, counts, image)
    return Windows(*((int(a), int(b)) for a, b in pairs))


def conv_filter_gradient(images: tf.Tensor, flow: tf.Tensor, windows: Windows) -> tf.Tensor:
    """The gradient of a convolution by its filter: [*sides, channels, outputs].

    Args:
        images: [n, height, width, channels].
        flow: What flows back, [n, *counts, outputs].
        windows: Of the convolution.
    """
    channels, outputs = images.shape[3], flow.shape[3]
    padded = windows.pad(images, 0.0)
    patches = tf.concat([windows.at(padded, *place) for place in windows.places], axis=3)
    rows = int(np.prod(flow.shape[:3]))
    product = tf.matmul(
        tf.reshape(patches, [rows, -1]), tf.reshape(flow, [rows, outputs]), transpose_a=True
    )
    return tf.reshape(product, [*windows.sides, channels, outputs])


def depthwise_filter_gradient(images: tf.Tensor, flow: tf.Tensor, windows: Windows) -> tf.Tensor:
    """The gradient of a depthwise convolution by its filter: [*sides, channels, multiplier].

    Args:
        images: [n, height, width, channels].
        flow: What flows back, [n, *counts, channels * multiplier].
        windows: Of the convolution.
    """
    channels = images.shape[3]
    multiplier = flow.shape[3] // channels
    flow = tf.reshape(flow, [*flow.shape[:3], channels, multiplier])
    padded = windows.pad(images, 0.0)
    sums = [
        tf.reduce_sum(windows.at(padded, *place)[..., None] * flow, axis=[0, 1, 2])
        for place in windows.places
    ]
    return tf.reshape(tf.stack(sums), [*windows.sides, channels, multiplier])


def depthwise_input_gradient(kernel: tf.Tensor, flow: tf.Tensor, windows: Windows) -> tf.Tensor:
    """The gradient of a depthwise convolution by its images: [n, height, width, channels].

    Args:
        kernel: [*sides, channels, multiplier].
        flow: What flows back, [n, *counts, channels * multiplier].
        windows: Of the convolution.
    """
    channels, multiplier = kernel.shape[2:]
    flow = tf.reshape(flow, [*flow.shape[:3], channels, multiplier])
    parts = [tf.reduce_sum(flow * kernel[i, j], axis=-1) for i, j in windows.places]
    return windows.spread(parts)


def max_pool_gradient(
    images: tf.Tensor, maxima: tf.Tensor, flow: tf.Tensor, windows: Windows
) -> tf.Tensor:
    """The gradient of max pooling; of equal pixels the first one of a window has it.

    Args:
        images: [n, height, width, channels].
        maxima: Of the windows, [n, *counts, channels].
        flow: What flows back, [n, *counts, channels].
        windows: Of the pooling.
    """
    padded = windows.pad(images, float(np.finfo(np.float32).min))
    taken = tf.zeros(maxima.shape, tf.bool)
    parts = []
    for place in windows.places:
        hit = tf.equal(windows.at(padded, *place), maxima) & ~taken
        taken = taken | hit
        parts.append(tf.where(hit, flow, tf.zeros_like(flow)))
    return windows.spread(parts)


def average_pool_gradient(flow: tf.Tensor, windows: Windows) -> tf.Tensor:
    """The gradient of average pooling, whose means are over the pixels of the image alone.

    Args:
        flow: What flows back, [n, *counts, channels].
        windows: Of the pooling.
    """
    inside = np.zeros(windows.padded)
    inside[
        windows.before[0] : windows.before[0] + windows.image[0],
        windows.before[1] : windows.before[1] + windows.image[1],
    ] = 1
    counts = sum(
        inside[
            i : i + (windows.counts[0] - 1) * windows.strides[0] + 1 : windows.strides[0],
            j : j + (windows.counts[1] - 1) * windows.strides[1] + 1 : windows.strides[1],
        ]
        for i, j in windows.places
    )
    shares = flow / tf.constant(np.asarray(counts)[None, :, :, None], flow.dtype)
    return windows.spread([shares] * len(windows.places))


def _with_gaps(part: tf.Tensor, strides: tuple[int, int]) -> tf.Tensor:
    """[n, height, width, channels] with zeros between rows and between columns."""
    n, height, width, channels = part.shape
    down, right = strides
    if right > 1:
        wide = tf.reshape(part, [n * height * width, 1, channels])
        wide = tf.pad(wide, [[0, 0], [0, right - 1], [0, 0]])
        part = tf.reshape(wide, [n, height, width * right, channels])
        part = part[:, :, : (width - 1) * right + 1, :]
        width = part.shape[2]
    if down > 1:
        tall = tf.reshape(part, [n * height, 1, width * channels])
        tall = tf.pad(tall, [[0, 0], [0, down - 1], [0, 0]])
        part = tf.reshape(tall, [n, height * down, width, channels])
        part = part[:, : (height - 1) * down + 1, :, :]
    return part
