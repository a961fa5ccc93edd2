"""The base of an expert's two parts, autoencoder and classifier, as functions of a row of weights.

The `forward` of a part takes the kernels of its layers, the images and a function `join` that
combines the features of a layer with those of the earlier experts. The layers are those of Lee et
al. (2020): dense layers in `mlp_parts`, convolutions in `conv_parts`.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from nccl_tf.methods.cn_dpm.rows import Features, Kernel, Layout, Widths

Join = Callable[[int, tf.Tensor], tf.Tensor]
"""From the index of a shared layer and its features to the input of the next layer."""
Params = dict[str, Any]
"""Kernel and bias of each layer by name."""


class PartOutput(NamedTuple):
    """The output of a part of one expert for a batch of images.

    Attributes:
        params: Kernel and bias of each layer by name.
        result: The result of `forward`.
        features: The features of this expert, scattered to the channels of all experts.
    """

    params: Params
    result: Any
    features: Features


class Part:
    """Base class of the autoencoder and the classifier; one object serves all experts.

    Args:
        example_shape: Shape of one example, such as (height, width, channels).
        widths: Channels of the experts.
    """

    multiples: ClassVar[tuple[int, ...]]
    """Channels per channel of width, for each shared layer."""

    def __init__(self, example_shape: tuple[int, int, int], widths: Widths):
        self.example_shape = example_shape
        self.pixels = int(np.prod(example_shape))
        self.widths = widths
        self.first, self.later = (Layout(self.kernels(first)) for first in (True, False))
        self.size = max(self.first.size, self.later.size)

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers of expert 1 (`first`) or of a later expert."""
        raise NotImplementedError

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> Any:
        """Apply the layers to images.

        Args:
            params: Kernel and bias of each layer by name.
            images: [n, h, w, c], scaled to [0, 1].
            join: Combines the features of a shared layer with those of earlier experts.
        """
        raise NotImplementedError

    def initial_rows(self, random: np.random.Generator) -> np.ndarray:
        """Initial weights [1 + experts, size]; row k is expert k, row 0 has expert 1's layout."""
        rows = np.zeros((1 + self.widths.experts, self.size))
        for expert, row in enumerate(rows):
            layout = self.first if expert < 2 else self.later
            row[: layout.size] = layout.sample(random, self.widths, max(expert, 1))
        return rows

    def forward_first(self, row: tf.Tensor, images: tf.Tensor) -> "PartOutput":
        """Apply expert 1, or another row in its layout, to images.

        Args:
            row: [size], its weights.
            images: [n, h, w, c], scaled to [0, 1].
        """
        params = self.first.unpack(row)
        scattered: list[tf.Tensor] = []

        def join(level: int, features: tf.Tensor) -> tf.Tensor:
            multiple = self.multiples[level]
            scattered.append(self.widths.scatter_first_features(features, multiple))
            return features

        return PartOutput(params, self.forward(params, images, join), tuple(scattered))

    def forward_lateral(
        self, row: tf.Tensor, images: tf.Tensor, expert: tf.Tensor, earlier: Features
    ) -> "PartOutput":
        """Apply a later expert to images, with lateral inputs from the earlier experts.

        Args:
            row: [size], its weights.
            images: [n, h, w, c], scaled to [0, 1].
            expert: int64 scalar, its number, 2 or more.
            earlier: Features of the earlier experts, which receive no gradient.
        """
        params = self.later.unpack(row)
        scattered: list[tf.Tensor] = []

        def join(level: int, features: tf.Tensor) -> tf.Tensor:
            multiple = self.multiples[level]
            scattered.append(self.widths.scatter_features(features, expert, multiple))
            return tf.stop_gradient(earlier[level]) + scattered[-1]

        return PartOutput(params, self.forward(params, images, join), tuple(scattered))

    def mask_later(self, features: Features, expert: tf.Tensor) -> Features:
        """Keep the features of the experts before `expert` and set the others to 0."""
        pairs = zip(features, self.multiples, strict=True)
        return tuple(self.widths.mask_later(x, expert, multiple) for x, multiple in pairs)


def dense(name: str, inputs: int, outputs: int) -> Kernel:
    """The kernel of a dense layer with a bias."""
    return Kernel(name, (inputs, outputs), inputs, bias=outputs)


def affine(layer: tuple[tf.Tensor, Any], x: tf.Tensor) -> tf.Tensor:
    """Apply a dense layer: [n, inputs] -> [n, outputs]."""
    return x @ layer[0] + layer[1]
