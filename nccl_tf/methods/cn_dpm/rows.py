"""The weights of an expert as one row, and the layout of the features that experts share.

Experts are added one at a time. Expert 1 is wide; each later expert is narrow, but its layers also
read the features of all earlier experts (lateral connections). The features of a layer are one
array whose last axis has the channels of expert 1, then those of expert 2, and so on up to the
maximum number of experts, with zeros for experts that do not exist yet. So every array has a fixed
shape, whatever the number of experts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

Features = tuple[tf.Tensor, ...]
"""The features of each shared layer, [n, ..., channels of all experts]."""


class Widths(NamedTuple):
    """Channels of the experts.

    Attributes:
        base: Channels of expert 1.
        growth: Channels of each later expert.
        experts: Maximum number of experts.
    """

    base: int
    growth: int
    experts: int

    def channels(self, first: bool) -> int:
        """Output channels of a layer of expert 1 (`first`) or of a later expert."""
        return self.base if first else self.growth

    def input_channels(self, first: bool) -> int:
        """Input channels of a layer of expert 1 (`first`) or of a later expert."""
        return self.base if first else self.base + (self.experts - 1) * self.growth

    def total_channels(self, expert: int) -> int:
        """Sum of the channels of experts 1 to `expert`."""
        return self.base + (expert - 1) * self.growth

    def scatter_features(self, features: tf.Tensor, expert: tf.Tensor, multiple: int) -> tf.Tensor:
        """Place the features of a later expert on the channel axis of all experts.

        Args:
            features: [n, ..., multiple * growth].
            expert: int64 scalar, the expert's number, 2 or more.
            multiple: Channels of the layer per channel of width.

        Returns:
            [n, ..., channels of all experts], 0 outside the expert's channels.
        """
        later_experts = self.experts - 1
        later_channels = later_experts * multiple * self.growth
        selected = tf.one_hot(expert - 2, later_experts, dtype=features.dtype)
        spread = features[..., None, :] * selected[:, None]
        shape = tf.shape(features)[:-1]
        later = tf.reshape(spread, tf.concat([shape, [later_channels]], 0))
        later.set_shape([*features.shape[:-1], later_channels])
        first = tf.zeros(tf.concat([shape, [multiple * self.base]], 0), features.dtype)
        return tf.concat([first, later], -1)

    def scatter_first_features(self, features: tf.Tensor, multiple: int) -> tf.Tensor:
        """Place the features of expert 1 on the channel axis of all experts, 0 elsewhere."""
        later_channels = multiple * (self.experts - 1) * self.growth
        return tf.pad(features, [[0, 0]] * (features.shape.rank - 1) + [[0, later_channels]])

    def mask_later(self, features: tf.Tensor, expert: tf.Tensor, multiple: int) -> tf.Tensor:
        """Keep the features of experts 1 to `expert` - 1 and set the others to 0."""
        earlier = multiple * (self.base + (expert - 2) * self.growth)
        return tf.where(
            tf.range(features.shape[-1], dtype=tf.int64) < earlier,
            features,
            tf.zeros_like(features),
        )


class Kernel(NamedTuple):
    """Shape and initialization of a layer's kernel and bias.

    Attributes:
        name: Name of the layer.
        shape: [..., inputs, outputs], or [height, width, outputs, inputs] if transposed.
        fan_in: Inputs of one output; if `multiple` is not 0, inputs per channel of width.
        multiple: If the layer reads the features of all experts, its input channels per channel of
            width, else 0.
        bias: Length of the bias; 0 for none.
    """

    name: str
    shape: tuple[int, ...]
    fan_in: int
    multiple: int = 0
    bias: int = 0


class Layout:
    """The positions of kernels and biases in a row of weights.

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
        """Kernel and bias (0.0 for no bias) of each layer, from a row [size or more]."""
        parts = iter(tf.split(row[: self.size], self._sizes))
        return {
            k.name: (tf.reshape(next(parts), k.shape), next(parts) if k.bias else 0.0)
            for k in self.kernels
        }

    def sample(self, random: np.random.Generator, widths: Widths, expert: int) -> np.ndarray:
        """Draw initial weights from U(+-1/sqrt(fan-in)); 0 for inputs from later experts.

        Args:
            random: Random generator.
            widths: Channels of the experts.
            expert: The expert's number, from 1.

        Returns:
            float [size].
        """
        parts = []
        for k in self.kernels:
            channels = widths.total_channels(expert) if k.multiple else 1
            bound = 1 / np.sqrt(k.fan_in * channels)
            kernel = random.uniform(-bound, bound, k.shape)
            if k.multiple:
                kernel[..., k.multiple * channels :, :] = 0
            parts += [kernel.ravel(), random.uniform(-bound, bound, k.bias)]
        return np.concatenate(parts)
