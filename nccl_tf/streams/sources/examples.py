"""Loading images, text and tables by the name of their source."""

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from nccl_tf.errors import checked_name
from nccl_tf.streams.arrays import ExampleSet, PixelScaling, set_from_arrays

# Mean and standard deviation of ImageNet's RGB training pixels in [0, 1], as in all model zoos.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


Folder = str | os.PathLike | None


def load_examples(
    source: str | Callable[..., Any], data_dir: Folder = None, manual_dir: Folder = None
) -> ExampleSet:
    """Load training and test examples, images with the pixel scaling of the reference protocol.

    Args:
        source: A name in `SOURCES`, or a function of `data_dir` and `manual_dir` that returns the
            training and the test examples, (inputs, labels) each.
        data_dir: TFDS's data folder; None for TFDS's own choice. The digits need none.
        manual_dir: Folder with the files of mini-ImageNet; None for TFDS's own choice.

    Raises:
        UserError: The source is unknown, or the data are not there and cannot be fetched, or are
            broken.
    """
    if callable(source):
        return set_from_arrays(*source(data_dir=data_dir, manual_dir=manual_dir))
    return SOURCES[checked_name("source of examples", source, SOURCES)](data_dir, manual_dir)


def _digits(data_dir: Folder, manual_dir: Folder) -> ExampleSet:
    from nccl_tf.streams.sources.digits import load_digits

    return load_digits()


def _mini_imagenet(data_dir: Folder, manual_dir: Folder) -> ExampleSet:
    from nccl_tf.streams.sources.mini_imagenet.load import load_mini_imagenet

    train, test = load_mini_imagenet(data_dir, manual_dir)
    mean, std = (np.array(part, np.float32) for part in (IMAGENET_MEAN, IMAGENET_STD))
    return ExampleSet(train, test, PixelScaling(mean=mean, std=std))


def _mnist(name: str, data_dir: Folder, manual_dir: Folder) -> ExampleSet:
    from nccl_tf.streams.sources.tfds import load_tfds

    return ExampleSet(*load_tfds(name, data_dir), PixelScaling())


def _cifar(name: str, data_dir: Folder, manual_dir: Folder) -> ExampleSet:
    from nccl_tf.streams.sources.tfds import load_tfds

    train, test = load_tfds(name, data_dir)
    mean = train.inputs.mean(axis=0, dtype=np.float64) / 255
    return ExampleSet(train, test, PixelScaling(mean=mean.astype(np.float32)))


def _breast_cancer(data_dir: Folder, manual_dir: Folder) -> ExampleSet:
    from nccl_tf.streams.sources.tables import load_breast_cancer

    return load_breast_cancer()


def _diabetes(data_dir: Folder, manual_dir: Folder) -> ExampleSet:
    from nccl_tf.streams.sources.tables import load_diabetes

    return load_diabetes()


def _reuters(data_dir: Folder, manual_dir: Folder) -> ExampleSet:
    from nccl_tf.streams.sources.reuters import load_reuters

    return load_reuters()


SOURCES: dict[str, Callable[[Folder, Folder], ExampleSet]] = {
    "digits": _digits,
    "mini_imagenet": _mini_imagenet,
    "mnist": functools.partial(_mnist, "mnist"),
    "fashion_mnist": functools.partial(_mnist, "fashion_mnist"),
    "cifar10": functools.partial(_cifar, "cifar10"),
    "cifar100": functools.partial(_cifar, "cifar100"),
    "reuters": _reuters,
    "breast_cancer": _breast_cancer,
    "diabetes": _diabetes,
}
"""The sources by name, each a function of `data_dir` and `manual_dir`."""
