"""Dense autoencoder and classifier of an expert, for small grey images (Lee et al., 2020)."""

from typing import ClassVar

import numpy as np
import tensorflow as tf

from nccl_tf.methods.cn_dpm.parts import Join, Params, Part, PartOutput, affine, dense
from nccl_tf.methods.cn_dpm.rows import Kernel, Widths


class MlpVae(Part):
    """Variational autoencoder: two dense layers to a Gaussian code, and a decoder of three.

    Args:
        example_shape: Shape of one example, such as (height, width, channels).
        widths: Channels of the experts.
        latent: Dimension of the code.
    """

    multiples: ClassVar[tuple[int, ...]] = (1, 1)

    def __init__(self, example_shape: tuple[int, int, int], widths: Widths, latent: int):
        self.latent = latent
        super().__init__(example_shape, widths)

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers."""
        outputs, inputs = self.widths.channels(first), self.widths.input_channels(first)
        base = self.widths.base
        return [
            dense("encoder1", int(np.prod(self.example_shape)), outputs),
            Kernel("encoder2", (inputs, outputs), 1, 1, outputs),
            Kernel("code", (inputs, 2 * self.latent), 1, 1, 2 * self.latent),
            dense("decoder1", self.latent, base),
            dense("decoder2", base, base),
            dense("decoder3", base, int(np.prod(self.example_shape))),
        ]

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> tuple[tf.Tensor, tf.Tensor]:
        """Encode images: mean and log variance of the code, [n, latent] each."""
        flat = tf.reshape(images, [-1, self.pixels])
        x = join(0, tf.nn.relu(affine(params["encoder1"], flat)))
        x = join(1, tf.nn.relu(affine(params["encoder2"], x)))
        return tf.split(affine(params["code"], x), 2, axis=1)

    def decode(self, params: Params, code: tf.Tensor) -> tf.Tensor:
        """Decode codes [n, latent] to the logits of the mean image, [n, pixels]."""
        x = tf.nn.relu(affine(params["decoder1"], code))
        x = tf.nn.relu(affine(params["decoder2"], x))
        return affine(params["decoder3"], x)

    def log_density(self, images: tf.Tensor, output: PartOutput, noise: tf.Tensor) -> tf.Tensor:
        """The evidence lower bound of log p(x), in nats, with unit variance of the pixels.

        Args:
            images: [n, h, w, c] in [0, 1].
            output: Output of this autoencoder for the images.
            noise: Standard normal, [n, samples, latent].

        Returns:
            [n].
        """
        mean, log_variance = (part[:, None] for part in output.result)
        code = mean + tf.exp(log_variance / 2) * noise
        decoded = self.decode(output.params, tf.reshape(code, [-1, self.latent]))
        decoded = tf.reshape(tf.sigmoid(decoded), [-1, tf.shape(noise)[1], self.pixels])
        flat = tf.reshape(images, [-1, 1, self.pixels])
        errors = tf.reduce_sum(tf.math.squared_difference(flat, decoded), axis=2)
        size = tf.exp(log_variance) + tf.square(mean) - 1 - log_variance
        constant = self.pixels * np.log(2 * np.pi)
        return -(tf.reduce_mean(errors, axis=1) + tf.reduce_sum(size, axis=(1, 2)) + constant) / 2


class MlpClassifier(Part):
    """Classifier: two dense layers and a softmax.

    Args:
        example_shape: Shape of one example, such as (height, width, channels).
        widths: Channels of the experts.
        num_classes: Number of classes.
    """

    multiples: ClassVar[tuple[int, ...]] = (1, 1)

    def __init__(self, example_shape: tuple[int, int, int], widths: Widths, num_classes: int):
        self.num_classes = num_classes
        super().__init__(example_shape, widths)

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers."""
        outputs, inputs = self.widths.channels(first), self.widths.input_channels(first)
        return [
            dense("hidden1", int(np.prod(self.example_shape)), outputs),
            Kernel("hidden2", (inputs, outputs), 1, 1, outputs),
            Kernel("logits", (inputs, self.num_classes), 1, 1, self.num_classes),
        ]

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> tf.Tensor:
        """log p(y | x), [n, classes]."""
        flat = tf.reshape(images, [-1, self.pixels])
        x = join(0, tf.nn.relu(affine(params["hidden1"], flat)))
        x = join(1, tf.nn.relu(affine(params["hidden2"], x)))
        return tf.nn.log_softmax(affine(params["logits"], x))
