"""The two parts of an expert, a variational autoencoder and a classifier, as functions of rows.

Dense parts for small grey images and convolutional ones for colour images, with the layers of Lee
et al. (2020). Their `forward` takes the layers' kernels, the images and a function `join`, which
puts the features of a layer beside those of the earlier experts.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from nccl_tf.networks.expert_rows import Features, Kernel, Layout, Widths

Join = Callable[[int, tf.Tensor], tf.Tensor]
Params = dict[str, Any]


class Outcome(NamedTuple):
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
        image_shape: (height, width, channels).
        widths: Channels of the experts.
    """

    multiples: ClassVar[tuple[int, ...]]
    """Channels per channel of width of each layer whose features experts share."""

    def __init__(self, image_shape: tuple[int, int, int], widths: Widths):
        self.image_shape = image_shape
        self.pixels = int(np.prod(image_shape))
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

    def alone(self, row: tf.Tensor, images: tf.Tensor) -> "Outcome":
        """What expert 1, or one of its form, makes of images.

        Args:
            row: [size], its weights.
            images: [n, h, w, c] scaled to [0, 1].
        """
        params, own = self.first.unpack(row), []

        def join(level: int, features: tf.Tensor) -> tf.Tensor:
            own.append(self.widths.first_placed(features, self.multiples[level]))
            return features

        return Outcome(params, self.forward(params, images, join), tuple(own))

    def beside(
        self, row: tf.Tensor, images: tf.Tensor, expert: tf.Tensor, earlier: Features
    ) -> "Outcome":
        """What a later expert makes of images and the features of the experts before it.

        Args:
            row: [size], its weights.
            images: [n, h, w, c] scaled to [0, 1].
            expert: int32 scalar, its number, 2 or more.
            earlier: Their features, which receive no gradient.
        """
        params, own = self.later.unpack(row), []

        def join(level: int, features: tf.Tensor) -> tf.Tensor:
            own.append(self.widths.placed(features, expert, self.multiples[level]))
            return tf.stop_gradient(earlier[level]) + own[-1]

        return Outcome(params, self.forward(params, images, join), tuple(own))

    def known(self, features: Features, expert: tf.Tensor) -> Features:
        """The features of the experts before `expert`, 0 in place of the others."""
        pairs = zip(features, self.multiples, strict=True)
        return tuple(self.widths.before(x, expert, multiple) for x, multiple in pairs)


class MlpVae(Part):
    """Two dense layers to a Gaussian code, two dense layers back.

    Args:
        image_shape: (height, width, channels).
        widths: Channels of the experts.
        latent: Length of the code.
    """

    multiples = (1, 1)

    def __init__(self, image_shape: tuple[int, int, int], widths: Widths, latent: int):
        self.latent = latent
        super().__init__(image_shape, widths)

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers."""
        own, read, base = self.widths.own(first), self.widths.read(first), self.widths.base
        return [
            _dense("encoder1", int(np.prod(self.image_shape)), own),
            Kernel("encoder2", (read, own), 1, 1, own),
            Kernel("code", (read, 2 * self.latent), 1, 1, 2 * self.latent),
            _dense("decoder1", self.latent, base),
            _dense("decoder2", base, base),
            _dense("decoder3", base, int(np.prod(self.image_shape))),
        ]

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and logarithm of the variance of the code, [n, latent] each."""
        flat = tf.reshape(images, [-1, self.pixels])
        x = join(0, tf.nn.relu(_apply(params["encoder1"], flat)))
        x = join(1, tf.nn.relu(_apply(params["encoder2"], x)))
        return tf.split(_apply(params["code"], x), 2, axis=1)

    def decode(self, params: Params, code: tf.Tensor) -> tf.Tensor:
        """Logits of the mean image, [n, pixels], of codes [n, latent]."""
        x = tf.nn.relu(_apply(params["decoder1"], code))
        x = tf.nn.relu(_apply(params["decoder2"], x))
        return _apply(params["decoder3"], x)


class MlpClassifier(Part):
    """Two dense layers and a softmax.

    Args:
        image_shape: (height, width, channels).
        widths: Channels of the experts.
        num_classes: Number of classes.
    """

    multiples = (1, 1)

    def __init__(self, image_shape: tuple[int, int, int], widths: Widths, num_classes: int):
        self.num_classes = num_classes
        super().__init__(image_shape, widths)

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers."""
        own, read = self.widths.own(first), self.widths.read(first)
        return [
            _dense("hidden1", int(np.prod(self.image_shape)), own),
            Kernel("hidden2", (read, own), 1, 1, own),
            Kernel("logits", (read, self.num_classes), 1, 1, self.num_classes),
        ]

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> tf.Tensor:
        """log p(y | x), [n, classes]."""
        flat = tf.reshape(images, [-1, self.pixels])
        x = join(0, tf.nn.relu(_apply(params["hidden1"], flat)))
        x = join(1, tf.nn.relu(_apply(params["hidden2"], x)))
        return tf.nn.log_softmax(_apply(params["logits"], x))


class ConvVae(MlpVae):
    """Two convolutions with pooling and a dense layer to a Gaussian code, and the way back."""

    multiples = (1, 2, 4)

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers."""
        own, read, base = self.widths.own(first), self.widths.read(first), self.widths.base
        height, width, channels = self.image_shape
        area = (height // 4) * (width // 4)
        return [
            _conv("encoder1", 3, channels, own, bias=True),
            Kernel("encoder2", (3, 3, read, 2 * own), 9, 1, 2 * own),
            Kernel("encoder3", (area, 2 * read, 4 * own), 2 * area, 2, 4 * own),
            Kernel("code", (4 * read, 2 * self.latent), 4, 4, 2 * self.latent),
            _dense("decoder1", self.latent, 4 * base),
            _dense("decoder2", 4 * base, area * 2 * base),
            Kernel("decoder3", (4, 4, base, 2 * base), 16 * base, 0, base),
            Kernel("decoder4", (4, 4, channels, base), 16 * channels, 0, channels),
        ]

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and logarithm of the variance of the code, [n, latent] each."""
        x = join(0, tf.nn.relu(_pooled(_convolved(params["encoder1"], images))))
        x = join(1, tf.nn.relu(_pooled(_convolved(params["encoder2"], x))))
        kernel, bias = params["encoder3"]
        flat = int(np.prod(kernel.shape[:2]))
        kernel = tf.reshape(kernel, [flat, kernel.shape[2]])
        x = join(2, tf.nn.relu(tf.reshape(x, [-1, flat]) @ kernel + bias))
        return tf.split(_apply(params["code"], x), 2, axis=1)

    def decode(self, params: Params, code: tf.Tensor) -> tf.Tensor:
        """Logits of the mean image, [n, pixels], of codes [n, latent]."""
        height, width, _ = self.image_shape
        x = tf.nn.relu(_apply(params["decoder1"], code))
        x = tf.nn.relu(_apply(params["decoder2"], x))
        x = tf.reshape(x, [-1, height // 4, width // 4, 2 * self.widths.base])
        x = _upsampled(params["decoder4"], tf.nn.relu(_upsampled(params["decoder3"], x)))
        return tf.reshape(x, [-1, self.pixels])


class ConvClassifier(MlpClassifier):
    """A ResNet with one block per stage and instance normalisation, and a softmax."""

    multiples = (1, 1, 2, 4, 8)
    _stages = ((1, 1, 1), (1, 2, 2), (2, 4, 2), (4, 8, 2))
    """Multiples of the width in front of and behind each stage, and its stride."""

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers."""
        own, read = self.widths.own(first), self.widths.read(first)
        kernels = [_conv("stem", 3, self.image_shape[-1], own)]
        for number, (before, behind, stride) in enumerate(self._stages, start=1):
            out = behind * own
            kernels += [
                Kernel(f"stage{number}_conv1", (3, 3, before * read, out), 9 * before, before),
                _conv(f"stage{number}_conv2", 3, out, out),
            ]
            if stride > 1 or not first:
                shape = (1, 1, before * read, out)
                kernels.append(Kernel(f"stage{number}_shortcut", shape, before, before))
        shape = (8 * read, self.num_classes)
        return [*kernels, Kernel("logits", shape, 8, 8, self.num_classes)]

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> tf.Tensor:
        """log p(y | x), [n, classes]."""
        x = join(0, tf.nn.relu(_normalized(_convolved(params["stem"], images))))
        for number, (_, _, stride) in enumerate(self._stages, start=1):
            name = f"stage{number}"
            y = _normalized(_convolved(params[f"{name}_conv1"], x, stride))
            y = _normalized(_convolved(params[f"{name}_conv2"], tf.nn.relu(y)))
            if f"{name}_shortcut" in params:
                x = _normalized(_convolved(params[f"{name}_shortcut"], x, stride))
            x = tf.nn.relu(x + y)
            if number == len(self._stages):
                x = tf.reduce_mean(x, axis=(1, 2))
            x = join(number, x)
        return tf.nn.log_softmax(_apply(params["logits"], x))


def _dense(name: str, inputs: int, outputs: int) -> Kernel:
    return Kernel(name, (inputs, outputs), inputs, bias=outputs)


def _conv(name: str, side: int, inputs: int, outputs: int, bias: bool = False) -> Kernel:
    shape = (side, side, inputs, outputs)
    return Kernel(name, shape, side * side * inputs, bias=outputs if bias else 0)


def _apply(layer: tuple[tf.Tensor, Any], x: tf.Tensor) -> tf.Tensor:
    return x @ layer[0] + layer[1]


def _convolved(layer: tuple[tf.Tensor, Any], x: tf.Tensor, stride: int = 1) -> tf.Tensor:
    return tf.nn.conv2d(x, layer[0], stride, "SAME") + layer[1]


def _upsampled(layer: tuple[tf.Tensor, Any], x: tf.Tensor) -> tf.Tensor:
    shape = [tf.shape(x)[0], 2 * x.shape[1], 2 * x.shape[2], layer[0].shape[2]]
    return tf.nn.conv2d_transpose(x, layer[0], shape, 2, "SAME") + layer[1]


def _pooled(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(x, 2, 2, "VALID")


def _normalized(x: tf.Tensor) -> tf.Tensor:
    """Each channel of each image with mean 0 and variance 1 (instance normalisation)."""
    mean, variance = tf.nn.moments(x, axes=(1, 2), keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + tf.constant(1e-5, x.dtype))
