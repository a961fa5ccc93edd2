"""Labelled examples, image data sets and pixel scaling."""

from typing import NamedTuple

import numpy as np


class Examples(NamedTuple):
    """Labelled examples.

    Args:
        inputs: [n, ...]; raw pixels uint8 [n, height, width, channels] in the named streams.
        labels: int32 [n], global class numbers (not numbers within a task).
    """

    inputs: np.ndarray
    labels: np.ndarray

    def take(self, indices: np.ndarray) -> "Examples":
        """Copy the examples at `indices` (integers [m], or a mask, bool [n])."""
        return Examples(self.inputs[indices], self.labels[indices])


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
