"""What the parts of an expert, an autoencoder and a classifier, have in common: functions of rows.

The `forward` of a part takes the layers' kernels, the images and a function `join`, which puts the
features of a layer beside those of the earlier experts. The layers are those of Lee et al. (2020):
dense ones in `mlp_parts`, convolutions in `conv_parts`.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from nccl_tf.networks.experts.rows import (
    Features,
    Kernel,
    Layout,
    Widths,
)

Join = Callable[[int, tf.Tensor], tf.Tensor]
Params = dict[str, Any]


class PartOutput(NamedTuple):
    """What a part of one expert makes of images.

    Attributes:
        params: The layers' kernels and biases by name.
        result: What `forward` returned.
        features: Its own features, at their place among those of all experts.
    """

    params: Params
    result: Any
    features: Features


class Part:
    """What the autoencoders and classifiers of all experts have in common.

    Args:
        example_shape: Shape of one example, such as (height, width, channels).
        widths: Channels of the experts.
    """

    multiples: ClassVar[tuple[int, ...]]
    """Channels per channel of width of each layer whose features experts share."""

    def __init__(self, example_shape: tuple[int, int, int], widths: Widths):
        self.example_shape = example_shape
        self.pixels = int(np.prod(example_shape))
        self.widths = widths
        self.first, self.later = (Layout(self.kernels(first)) for first in (True, False))
        self.size = max(self.first.size, self.later.size)

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers of expert 1 (`first`) or of a later one."""
        raise NotImplementedError

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> Any:
        """What the part makes of images [n, h, w, c] scaled to [0, 1]."""
        raise NotImplementedError

    def initial_rows(self, random: np.random.Generator) -> np.ndarray:
        """First weights [1 + experts, size]: row k is expert k's, row 0 of the form of expert 1."""
        rows = np.zeros((1 + self.widths.experts, self.size))
        for expert, row in enumerate(rows):
            layout = self.first if expert < 2 else self.later
            row[: layout.size] = layout.initial(random, self.widths, max(expert, 1))
        return rows

    def forward_first(self, row: tf.Tensor, images: tf.Tensor) -> "PartOutput":
        """What expert 1, or one of its form, makes of images.

        Args:
            row: [size], its weights.
            images: [n, h, w, c] scaled to [0, 1].
        """
        params, own = self.first.unpack(row), []

        def join(level: int, features: tf.Tensor) -> tf.Tensor:
            own.append(self.widths.scatter_first_features(features, self.multiples[level]))
            return features

        return PartOutput(params, self.forward(params, images, join), tuple(own))

    def forward_lateral(
        self, row: tf.Tensor, images: tf.Tensor, expert: tf.Tensor, earlier: Features
    ) -> "PartOutput":
        """What a later expert makes of images and the features of the experts before it.

        Args:
            row: [size], its weights.
            images: [n, h, w, c] scaled to [0, 1].
            expert: int32 scalar, its number, 2 or more.
            earlier: Their features, which receive no gradient.
        """
        params, own = self.later.unpack(row), []

        def join(level: int, features: tf.Tensor) -> tf.Tensor:
            own.append(self.widths.scatter_features(features, expert, self.multiples[level]))
            return tf.stop_gradient(earlier[level]) + own[-1]

        return PartOutput(params, self.forward(params, images, join), tuple(own))

    def mask_later(self, features: Features, expert: tf.Tensor) -> Features:
        """The features of the experts before `expert`, 0 in place of the others."""
        pairs = zip(features, self.multiples, strict=True)
        return tuple(self.widths.mask_later(x, expert, multiple) for x, multiple in pairs)


def dense(name: str, inputs: int, outputs: int) -> Kernel:
    """A dense layer of so many inputs and outputs, with a bias."""
    return Kernel(name, (inputs, outputs), inputs, bias=outputs)


def affine(layer: tuple[tf.Tensor, Any], x: tf.Tensor) -> tf.Tensor:
    """A dense layer's output, [n, outputs], of x [n, inputs]."""
    return x @ layer[0] + layer[1]
