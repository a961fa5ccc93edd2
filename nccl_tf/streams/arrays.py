"""Labelled examples, image data sets and pixel scaling."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError


class Examples(NamedTuple):
    """Labelled examples.

    Args:
        inputs: [n, ...], such as raw pixels uint8 [n, height, width, channels], or a dictionary of
            such arrays by name.
        labels: int32 [n], global class numbers (not numbers within a task), or float32 targets
            [n, ...].
    """

    inputs: Any
    labels: np.ndarray

    def take(self, indices: np.ndarray) -> "Examples":
        """Copy the examples at `indices` (integers [m], or a mask, bool [n])."""
        return self.map(lambda column: column[indices])

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> "Examples":
        """The examples of what `function` makes of each array."""
        if isinstance(self.inputs, dict):
            inputs: Any = {name: function(array) for name, array in self.inputs.items()}
        else:
            inputs = function(self.inputs)
        return Examples(inputs, function(self.labels))

    def columns(self) -> list[np.ndarray]:
        """The arrays: of the inputs, by name where they have names, then the labels."""
        inputs = self.inputs if isinstance(self.inputs, dict) else {"": self.inputs}
        return [*inputs.values(), self.labels]


class PixelScaling(NamedTuple):
    """Scaling of raw pixels by a network: (x * scale - mean) / std.

    Args:
        scale: Factor of the raw values, 1/255 or, for the digits, 1/16.
        mean: float32 [height, width, channels] (a mean image) or [channels], in scaled units.
        std: float32 [channels], in scaled units.
    """

    scale: float = 1 / 255
    mean: np.ndarray | None = None
    std: np.ndarray | None = None


class ImageSet(NamedTuple):
    """A data set before it is split into tasks.

    Args:
        train: Training examples.
        test: Test examples.
        pixels: Pixel scaling of the networks.
    """

    train: Examples
    test: Examples
    pixels: PixelScaling


def images_from_arrays(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    pixels: PixelScaling | None = None,
) -> ImageSet:
    """A data set from arrays.

    Args:
        train: Training images uint8 [n, height, width, channels] and labels, integers [n] >= 0.
        test: Test images and labels, of the same form.
        pixels: How the package's networks scale raw pixels; None for 1/255.

    Raises:
        UserError: The arrays are not of these shapes and types.
    """
    first, second = _examples(*train), _examples(*test)
    if first.inputs.shape[1:] != second.inputs.shape[1:]:
        raise UserError(
            f"received training images {first.inputs.shape[1:]} and test images "
            f"{second.inputs.shape[1:]}: expected images of one shape"
        )
    return ImageSet(first, second, PixelScaling() if pixels is None else pixels)


def _examples(images: np.ndarray, labels: np.ndarray) -> Examples:
    images, labels = np.asarray(images), np.asarray(labels)
    if images.dtype != np.uint8 or images.ndim != 4 or not len(images):
        raise UserError(
            f"received images {images.dtype.name} {images.shape}: expected uint8 "
            "[n, height, width, channels] with n >= 1; raw pixels need no scaling"
        )
    whole = np.issubdtype(labels.dtype, np.integer)
    if labels.shape != images.shape[:1] or not whole or labels.min() < 0:
        raise UserError(
            f"received labels {labels.dtype.name} {labels.shape} for {len(images)} images: "
            "expected an integer from 0 up for each image"
        )
    return Examples(images, labels.astype(np.int32))
