"""The weights of one expert as a row of numbers, and the features that experts share.

Experts come one after the other. Expert 1 is wide; each later one is narrow, but a layer of it
reads the features of all experts before it beside its own. All features of a layer stand in one
array, whose last axis has the channels of expert 1, then those of expert 2, and so on up to the
greatest number of experts; those that do not exist yet are 0. So every array has a fixed shape,
whatever the number of experts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

Features = tuple[tf.Tensor, ...]
"""The features of each layer that experts share, [n, ..., channels of all experts]."""


class Widths(NamedTuple):
    """Channels of the experts.

    Attributes:
        base: Of expert 1.
        growth: Of each later one.
        experts: Greatest number of experts.
    """

    base: int
    growth: int
    experts: int

    def channels(self, first: bool) -> int:
        """Channels of expert 1 (`first`), or of a later one."""
        return self.base if first else self.growth

    def input_channels(self, first: bool) -> int:
        """Channels that a kernel of expert 1 (`first`), or of a later one, has inputs for."""
        return self.base if first else self.base + (self.experts - 1) * self.growth

    def total_channels(self, expert: int) -> int:
        """Channels of the experts 1 to `expert` together."""
        return self.base + (expert - 1) * self.growth

    def scatter_features(self, own: tf.Tensor, expert: tf.Tensor, multiple: int) -> tf.Tensor:
        """The features of a later expert at its place among those of all, 0 elsewhere.

        Args:
            own: [n, ..., multiple * growth].
            expert: int32 scalar, the expert's number, 2 or more.
            multiple: Channels of the layer per channel of width.
        """
        places = self.experts - 1
        here = tf.one_hot(expert - 2, places, dtype=own.dtype)
        spread = own[..., None, :] * here[:, None]
        shape = tf.shape(own)[:-1]
        flat = tf.reshape(spread, tf.concat([shape, [places * multiple * self.growth]], 0))
        flat.set_shape([*own.shape[:-1], places * multiple * self.growth])
        before = tf.zeros(tf.concat([shape, [multiple * self.base]], 0), own.dtype)
        return tf.concat([before, flat], -1)

    def scatter_first_features(self, own: tf.Tensor, multiple: int) -> tf.Tensor:
        """The features of expert 1 at its place among those of all, 0 elsewhere."""
        rest = multiple * (self.experts - 1) * self.growth
        return tf.pad(own, [[0, 0]] * (own.shape.rank - 1) + [[0, rest]])

    def mask_later(self, features: tf.Tensor, expert: tf.Tensor, multiple: int) -> tf.Tensor:
        """The features of the experts 1 to `expert` - 1, 0 in place of the others."""
        known = multiple * (self.base + (expert - 2) * self.growth)
        return tf.where(tf.range(features.shape[-1]) < known, features, tf.zeros_like(features))


class Kernel(NamedTuple):
    """One layer's kernel and bias.

    Attributes:
        name: Of the layer.
        shape: [..., inputs, outputs], or [height, width, outputs, inputs] if transposed.
        fan_in: Inputs of an output, channels read from other experts apart.
        multiple: Channels per channel of width where it reads the features of all experts, else 0;
            `fan_in` is then what one channel of width adds.
        bias: Length of the bias; 0 for none.
    """

    name: str
    shape: tuple[int, ...]
    fan_in: int
    multiple: int = 0
    bias: int = 0


class Layout:
    """Where each kernel stands in a row.

    Args:
        kernels: The layers, in order.
    """

    def __init__(self, kernels: Sequence[Kernel]):
        self.kernels = tuple(kernels)
        self._sizes = [
            size for k in self.kernels for size in (int(np.prod(k.shape)), k.bias) if size
        ]
        self.size = sum(self._sizes)

    def unpack(self, row: tf.Tensor) -> dict[str, tuple[tf.Tensor, tf.Tensor | float]]:
        """Kernel and bias (0.0 where there is none) of each layer, from a row [size or more]."""
        parts = iter(tf.split(row[: self.size], self._sizes))
        return {
            k.name: (tf.reshape(next(parts), k.shape), next(parts) if k.bias else 0.0)
            for k in self.kernels
        }

    def initial(self, random: np.random.Generator, widths: Widths, expert: int) -> np.ndarray:
        """Random first weights, U(+-1/sqrt(fan-in)); 0 where experts that come later are read.

        Args:
            random: Draws the numbers.
            widths: Channels of the experts.
            expert: The expert's number, from 1.
        """
        parts = []
        for k in self.kernels:
            known = widths.total_channels(expert) if k.multiple else 1
            bound = 1 / np.sqrt(k.fan_in * known)
            kernel = random.uniform(-bound, bound, k.shape)
            if k.multiple:
                kernel[..., k.multiple * known :, :] = 0
            parts += [kernel.ravel(), random.uniform(-bound, bound, k.bias)]
        return np.concatenate(parts)
