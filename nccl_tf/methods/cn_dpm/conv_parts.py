"""Convolutional autoencoder and classifier of an expert, for colour images (Lee et al., 2020)."""

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from nccl_tf.methods.cn_dpm.mlp_parts import MlpClassifier, MlpVae
from nccl_tf.methods.cn_dpm.parts import Join, Params, affine, dense
from nccl_tf.methods.cn_dpm.rows import Kernel


class ConvVae(MlpVae):
    """Variational autoencoder: two convolutions and a dense layer to a code, and the decoder."""

    multiples: ClassVar[tuple[int, ...]] = (1, 2, 4)

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers."""
        outputs, inputs = self.widths.channels(first), self.widths.input_channels(first)
        base = self.widths.base
        height, width, channels = self.example_shape
        area = (height // 4) * (width // 4)
        return [
            _conv("encoder1", 3, channels, outputs, bias=True),
            Kernel("encoder2", (3, 3, inputs, 2 * outputs), 9, 1, 2 * outputs),
            Kernel("encoder3", (area, 2 * inputs, 4 * outputs), 2 * area, 2, 4 * outputs),
            Kernel("code", (4 * inputs, 2 * self.latent), 4, 4, 2 * self.latent),
            dense("decoder1", self.latent, 4 * base),
            dense("decoder2", 4 * base, area * 2 * base),
            Kernel("decoder3", (4, 4, base, 2 * base), 16 * base, 0, base),
            Kernel("decoder4", (4, 4, channels, base), 16 * channels, 0, channels),
        ]

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> tuple[tf.Tensor, tf.Tensor]:
        """Encode images: mean and log variance of the code, [n, latent] each."""
        x = join(0, tf.nn.relu(_pool(_conv2d(params["encoder1"], images))))
        x = join(1, tf.nn.relu(_pool(_conv2d(params["encoder2"], x))))
        kernel, bias = params["encoder3"]
        flat = int(np.prod(kernel.shape[:2]))
        kernel = tf.reshape(kernel, [flat, kernel.shape[2]])
        x = join(2, tf.nn.relu(tf.reshape(x, [-1, flat]) @ kernel + bias))
        return tf.split(affine(params["code"], x), 2, axis=1)

    def decode(self, params: Params, code: tf.Tensor) -> tf.Tensor:
        """Decode codes [n, latent] to the logits of the mean image, [n, pixels]."""
        height, width, _ = self.example_shape
        x = tf.nn.relu(affine(params["decoder1"], code))
        x = tf.nn.relu(affine(params["decoder2"], x))
        x = tf.reshape(x, [-1, height // 4, width // 4, 2 * self.widths.base])
        x = _upsample(params["decoder4"], tf.nn.relu(_upsample(params["decoder3"], x)))
        return tf.reshape(x, [-1, self.pixels])


class ConvClassifier(MlpClassifier):
    """Classifier: a ResNet with one block per stage and instance normalisation, and a softmax."""

    multiples: ClassVar[tuple[int, ...]] = (1, 1, 2, 4, 8)
    _stages = ((1, 1, 1), (1, 2, 2), (2, 4, 2), (4, 8, 2))
    """Input channels and output channels per channel of width, and stride, of each stage."""

    def kernels(self, first: bool) -> list[Kernel]:
        """The layers."""
        outputs, inputs = self.widths.channels(first), self.widths.input_channels(first)
        kernels = [_conv("stem", 3, self.example_shape[-1], outputs)]
        for number, (fan_in, fan_out, stride) in enumerate(self._stages, start=1):
            out = fan_out * outputs
            kernels += [
                Kernel(f"stage{number}_conv1", (3, 3, fan_in * inputs, out), 9 * fan_in, fan_in),
                _conv(f"stage{number}_conv2", 3, out, out),
            ]
            if stride > 1 or not first:
                shape = (1, 1, fan_in * inputs, out)
                kernels.append(Kernel(f"stage{number}_shortcut", shape, fan_in, fan_in))
        last = Kernel("logits", (8 * inputs, self.num_classes), 8, 8, self.num_classes)
        return [*kernels, last]

    def forward(self, params: Params, images: tf.Tensor, join: Join) -> tf.Tensor:
        """log p(y | x), [n, classes]."""
        x = join(0, tf.nn.relu(_instance_norm(_conv2d(params["stem"], images))))
        for number, (_, _, stride) in enumerate(self._stages, start=1):
            name = f"stage{number}"
            y = _instance_norm(_conv2d(params[f"{name}_conv1"], x, stride))
            y = _instance_norm(_conv2d(params[f"{name}_conv2"], tf.nn.relu(y)))
            if f"{name}_shortcut" in params:
                x = _instance_norm(_conv2d(params[f"{name}_shortcut"], x, stride))
            x = tf.nn.relu(x + y)
            if number == len(self._stages):
                x = tf.reduce_mean(x, axis=(1, 2))
            x = join(number, x)
        return tf.nn.log_softmax(affine(params["logits"], x))


def _conv(name: str, side: int, inputs: int, outputs: int, bias: bool = False) -> Kernel:
    shape = (side, side, inputs, outputs)
    return Kernel(name, shape, side * side * inputs, bias=outputs if bias else 0)


def _conv2d(layer: tuple[tf.Tensor, Any], x: tf.Tensor, stride: int = 1) -> tf.Tensor:
    if layer[0].shape[0] == 1:
        # Subsample first: oneDNN's gradient of a 1x1 kernel with stride 2 writes out of bounds for
        # some shapes (TensorFlow 2.21; 8x10 pixels, 6 channels to 12).
        x, stride = x[:, ::stride, ::stride], 1
    return tf.nn.conv2d(x, layer[0], stride, "SAME") + layer[1]


def _upsample(layer: tuple[tf.Tensor, Any], x: tf.Tensor) -> tf.Tensor:
    shape = [tf.shape(x)[0], 2 * x.shape[1], 2 * x.shape[2], layer[0].shape[2]]
    return tf.nn.conv2d_transpose(x, layer[0], shape, 2, "SAME") + layer[1]


def _pool(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(x, 2, 2, "VALID")


def _instance_norm(x: tf.Tensor) -> tf.Tensor:
    """Normalize each channel of each image to mean 0 and variance 1."""
    mean, variance = tf.nn.moments(x, axes=(1, 2), keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + tf.constant(1e-5, x.dtype))
