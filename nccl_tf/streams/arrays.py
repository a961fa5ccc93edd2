"""The data that pass between the parts: labelled examples, and how pixels are scaled."""

from typing import NamedTuple

import numpy as np


class Examples(NamedTuple):
    """Labelled examples.

    Args:
        inputs: [n, ...]; raw pixels uint8 [n, height, width, channels] in the named streams.
        labels: int32 [n], global class numbers (not numbers inside a task).
    """

    inputs: np.ndarray
    labels: np.ndarray

    def take(self, indices: np.ndarray) -> "Examples":
        """The examples at `indices` (integers [m], or a mask of bool [n]), copied."""
        return Examples(self.inputs[indices], self.labels[indices])


class PixelScaling(NamedTuple):
    """How a network scales raw pixels: (x * scale - mean) / std.

    Args:
        scale: Factor on the raw values, 1/255 or, for the digits, 1/16.
        mean: float32 [height, width, channels] (a mean image) or [channels], in scaled units.
        std: float32 [channels], in scaled units.
    """

    scale: float = 1 / 255
    mean: np.ndarray | None = None
    std: np.ndarray | None = None


class ImageSet(NamedTuple):
    """A data set before it is cut into tasks: training and test examples and the pixel scaling."""

    train: Examples
    test: Examples
    pixels: PixelScaling
