"""The layers that scale raw pixels, so that a saved model takes raw images."""

from typing import TYPE_CHECKING

import keras
import numpy as np

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
