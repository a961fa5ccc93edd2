"""Loading images by the name of their source."""

import os

import numpy as np

from nccl_tf.streams.arrays import ImageSet, PixelScaling

# Mean and standard deviation of ImageNet's RGB training pixels in [0, 1], as in all model zoos.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def load_images(
    source: str,
    data_dir: str | os.PathLike | None = None,
    manual_dir: str | os.PathLike | None = None,
) -> ImageSet:
    """Load training and test images, with the pixel scaling of the reference protocol.

    Args:
        source: "digits", "mini_imagenet", "mnist", "cifar10" or "cifar100".
        data_dir: TFDS's data folder; None for TFDS's default. The digits need none.
        manual_dir: Folder with the files of mini-ImageNet; None for TFDS's default.

    Raises:
        UserError: The data are missing and cannot be downloaded, or are broken.
    """
    if source == "digits":
        from nccl_tf.streams.sources.digits import load_digits

        return load_digits()
    if source == "mini_imagenet":
        from nccl_tf.streams.sources.mini_imagenet.builder import load_mini_imagenet

        train, test = load_mini_imagenet(data_dir, manual_dir)
        mean, std = (np.array(part, np.float32) for part in (IMAGENET_MEAN, IMAGENET_STD))
        return ImageSet(train, test, PixelScaling(mean=mean, std=std))
    from nccl_tf.streams.sources.tfds import load_tfds

    train, test = load_tfds(source, data_dir)
    if not source.startswith("cifar"):
        return ImageSet(train, test, PixelScaling())
    mean = train.inputs.mean(axis=0, dtype=np.float64) / 255
    return ImageSet(train, test, PixelScaling(mean=mean.astype(np.float32)))
