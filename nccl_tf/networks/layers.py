"""Layers of the networks, and seeds for their initializers and dropout."""

import numbers
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.choices import AUGMENTATIONS
from nccl_tf.errors import UserError, checked_name, checked_seed
from nccl_tf.keras_private import layers_of
from nccl_tf.rng import seeded, with_argument

if TYPE_CHECKING:
    from nccl_tf.streams.arrays import PixelScaling

_DROPOUT_KEY, _AUGMENT_KEY = 1, 2
_CROP = 8
"""A crop moves an image by up to this part of its side: by 4 of 32 pixels."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class SubtractMeanImage(keras.layers.Layer):
    """Subtracts a mean image from every image.

    The mean image is the non-trainable weight `mean`, float32 [h, w, c] in the units of the layer's
    input, zeros until it is assigned. Keras's Normalization would write its thousands of values
    into the model's JSON config.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Create the weight, of the image's shape."""
        self.mean = self.add_weight(
            name="mean", shape=input_shape[1:], initializer="zeros", trainable=False
        )

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """The images [B, h, w, c] minus the mean image."""
        return inputs - self.mean


def check_example_shape(shape: Any, axes: int | None = None) -> None:
    """Check that a shape is that of one input, as the networks here take it.

    Args:
        shape: As a user gave it.
        axes: How many axes it has to have; None for any.

    Raises:
        UserError: It is not.
    """
    is_shape = isinstance(shape, (tuple, list)) and all(
        isinstance(side, numbers.Integral) for side in shape
    )
    if not is_shape or axes not in (None, len(shape)):
        expected = "(8,) or (28, 28, 1)" if axes is None else "(32, 32, 3)"
        raise UserError(
            f"received example_shape={shape!r}, expected the shape of one example, such as "
            f"{expected}; for several inputs, build your own network: keras.Model(inputs, outputs)"
        )


def augment_images(
    images: keras.KerasTensor, augment: Sequence[str], seed: int
) -> keras.KerasTensor:
    """Change raw images at random in training; in evaluation return them as float32.

    "flip" mirrors half of the images left to right. "crop" moves each by whole pixels, up to an
    eighth of its side (4 of 32), and fills with 0: a random crop of the padded image. The layers
    are Keras's, whose RandomCrop takes one place for all images of a batch.

    Args:
        images: Raw images [B, h, w, c].
        augment: Names, each once, in the order in which they are applied; () for the images.
        seed: Seed of the draws.

    Raises:
        UserError: A name is unknown or given twice, or the inputs are no images.
    """
    if isinstance(augment, str) or len(set(augment)) != len(augment):
        raise UserError(f"received augment={augment!r}, expected names such as ('flip', 'crop')")
    if augment and len(images.shape) != 4:
        raise UserError(
            f"received augment={tuple(augment)} for inputs of shape {tuple(images.shape[1:])}, "
            "expected images such as (32, 32, 3): leave augment out"
        )
    seeds = _generate_seeds([checked_seed(seed), _AUGMENT_KEY])
    for name in augment:
        checked_name("augment", name, AUGMENTATIONS)
        if name == "flip":
            layer = keras.layers.RandomFlip(
                "horizontal", seed=next(seeds), dtype="float32", name="flip"
            )
        else:
            # Rounded to the nearest pixel, each move is as likely as another.
            shares = [(round(side / _CROP) + 0.5) / side for side in images.shape[1:3]]
            layer = keras.layers.RandomTranslation(
                *shares, fill_mode="constant", interpolation="nearest", seed=next(seeds),
                dtype="float32", name="crop",
            )  # fmt: skip
        images = layer(images)
    return images


def scale_pixels(images: keras.KerasTensor, pixels: "PixelScaling | None") -> keras.KerasTensor:
    """Scale raw images to (x * scale - mean) / std.

    The scaling is float32 under every dtype policy, because half precision would round pixels by up
    to one part in 256; the next layer casts to its compute dtype.

    Args:
        images: Raw images [B, h, w, c].
        pixels: Scale, mean image or mean per channel, std per channel; None for x / 255.

    Returns:
        float32 [B, h, w, c].
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
    """Dropout whose draws are the same with and without XLA and survive saving.

    In training each entry is set to 0 with probability `rate`. A draw depends on the seed and on a
    counter, which is a weight: a model that is saved and loaded continues with the next draw. The
    state of Keras's Dropout is not saved, and its draws differ under XLA.

    Args:
        rate: Probability in [0, 1); kept entries are divided by 1 - rate.
        seed: Seed of the draws.
    """

    def __init__(self, rate: float, seed: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate = float(rate)
        self.seed = with_argument(checked_seed(seed))
        self.enabled = True
        self.draws = self.add_weight(
            name="draws", shape=(), dtype="int64", initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Drop entries in training; in evaluation return the inputs."""
        if not (training and self.enabled):
            return inputs
        self.draws.assign(self.draws.value + 1)
        seed = seeded(self.seed, tf.identity(self.draws.value))
        # Integer draws are the same with and without XLA.
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
        return {**super().get_config(), "rate": self.rate, "seed": int(self.seed)}


@contextmanager
def without_dropout(network: keras.Model) -> Iterator[None]:
    """Disable dropout, Keras's and that of nested models and layers, in graphs traced inside."""
    kept = [
        (layer, name, getattr(layer, name))
        for layer in layers_of(network)
        for kinds, name in _DRAWS
        if isinstance(layer, kinds)
    ]
    for layer, name, value in kept:
        setattr(layer, name, type(value)(0))
    try:
        yield
    finally:
        for layer, name, value in kept:
            setattr(layer, name, value)


_CELLS = (keras.layers.LSTMCell, keras.layers.GRUCell, keras.layers.SimpleRNNCell)
_DRAWS = (
    (CountedDropout, "enabled"),
    ((keras.layers.Dropout, keras.layers.GaussianDropout, keras.layers.AlphaDropout), "rate"),
    (keras.layers.GaussianNoise, "stddev"),
    (_CELLS, "dropout"),
    (_CELLS, "recurrent_dropout"),
)
"""Layers that draw numbers in training, and what is 0 where they draw none."""


def initializer_seeds(seed: int) -> Iterator[int]:
    """Generate an endless sequence of seeds, one for each initializer.

    Two Keras initializers with the same seed and shape draw the same values, and an initializer
    without a seed depends on the global state.
    """
    return _generate_seeds(checked_seed(seed))


def dropout_seeds(seed: int) -> Iterator[int]:
    """Generate an endless sequence of seeds for dropout layers.

    It is independent of `initializer_seeds`, so that adding dropout leaves the weights unchanged.
    """
    return _generate_seeds([seed, _DROPOUT_KEY])


def _generate_seeds(entropy: int | list[int]) -> Iterator[int]:
    draws = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    while True:
        yield int(draws.integers(2**31))
