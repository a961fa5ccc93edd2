"""Layers that networks are made of, and the seeds of their weights and draws."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from nccl_tf.streams.arrays import PixelScaling


@keras.saving.register_keras_serializable(package="nccl_tf")
class SubtractMeanImage(keras.layers.Layer):
    """Subtracts an image from every image: zeros until `mean` is assigned.

    Keras's Normalization would write the image's thousands of numbers into the model's JSON config;
    here `mean`, float32 [h, w, c] in the units of the layer's input, is a non-trainable weight.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the weight, of the image's shape."""
        self.mean = self.add_weight(
            name="mean", shape=input_shape[1:], initializer="zeros", trainable=False
        )

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """The images [B, h, w, c] minus the mean image."""
        return inputs - self.mean


def scale_pixels(images: keras.KerasTensor, pixels: "PixelScaling | None") -> keras.KerasTensor:
    """Raw images to (x * scale - mean) / std, in float32 under every dtype policy.

    Half precision would cost a pixel up to one part in 256 before the network sees it; the first
    layer after these casts to its own compute dtype.

    Args:
        images: Raw images [B, h, w, c].
        pixels: Scale, mean image or mean per channel, std per channel; None for x / 255.
    """
    if pixels is None:
        return keras.layers.Rescaling(1 / 255, dtype="float32", name="scale")(images)
    scaled = keras.layers.Rescaling(float(pixels.scale), dtype="float32", name="scale")(images)
    channels = images.shape[-1]
    mean = None if pixels.mean is None else np.asarray(pixels.mean, np.float32)
    if mean is not None and mean.ndim == 3:
        subtract = SubtractMeanImage(dtype="float32", name="mean_image")
        scaled = subtract(scaled)
        subtract.mean.assign(mean)
        mean = None
    if mean is None and pixels.std is None:
        return scaled
    mean = np.zeros(channels) if mean is None else mean
    variance = np.ones(channels) if pixels.std is None else np.square(np.float64(pixels.std))
    standardize = keras.layers.Normalization(
        axis=-1, mean=mean.tolist(), variance=variance.tolist(), dtype="float32", name="standardize"
    )
    return standardize(scaled)


@keras.saving.register_keras_serializable(package="nccl_tf")
class CountedDropout(keras.layers.Layer):
    """Sets each entry to 0 with probability `rate` in training, and scales the others up.

    Keras's Dropout draws other numbers under XLA than without, and its state is not saved with the
    model. Here a draw is given by the seed and a counter, which is a weight: a model that is saved
    and loaded goes on with the draws that would have come.

    Args:
        rate: Probability in [0, 1); what is kept is divided by 1 - rate.
        seed: Seed of the draws.
    """

    def __init__(self, rate: float, seed: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate = float(rate)
        self.seed = int(seed)
        self.drops = True
        self.draws = self.add_weight(
            name="draws", shape=(), dtype="int64", initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """The inputs in evaluation; in training the inputs with entries dropped, same shape."""
        if not (training and self.drops):
            return inputs
        self.draws.assign(self.draws.value + 1)
        seed = tf.stack([tf.constant(self.seed, tf.int64), tf.identity(self.draws.value)])
        # Whole numbers are the same with and without XLA.
        bits = tf.random.stateless_uniform(
            tf.shape(inputs), seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
        )
        kept = bits >= tf.constant(round(self.rate * 2**32), tf.uint32)
        return tf.where(kept, inputs / tf.constant(1 - self.rate, inputs.dtype), 0)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The shape of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments, for saving."""
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@contextmanager
def without_dropout(network: keras.Model) -> Iterator[None]:
    """Graphs that are traced here train the network without its `CountedDropout` layers."""
    layers = [layer for layer in network.layers if isinstance(layer, CountedDropout)]
    for layer in layers:
        layer.drops = False
    try:
        yield
    finally:
        for layer in layers:
            layer.drops = True


_DROPOUT = 1


def dropout_seeds(seed: int) -> Iterator[int]:
    """Endless seeds for dropout layers, apart from the initializers' seeds.

    So the weights do not depend on whether a network has dropout.
    """
    return _seeds([seed, _DROPOUT])


def initializer_seeds(seed: int) -> Iterator[int]:
    """Endless seeds, all of them given by `seed`.

    One for each initializer: two Keras initializers with the same seed and shape draw the same
    numbers, and one without a seed would depend on the global state.
    """
    return _seeds(seed)


def _seeds(entropy: int | list[int]) -> Iterator[int]:
    draws = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    while True:
        yield int(draws.integers(2**31))
