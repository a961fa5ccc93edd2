"""Images to choose hyperparameters on, for streams that hold out no tasks."""

import numpy as np

from nccl_tf.streams.examples import ImageSet
from nccl_tf.streams.seeding import HELD_OUT_IMAGES, generator


def hold_out_images(images: ImageSet) -> ImageSet:
    """A tenth of each class's training images as test images, the rest as training images.

    The tenth, rounded up, is drawn by a fixed generator and is the same for every seed. The test
    images are left out.
    """
    labels = images.train.labels
    held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = generator(0, HELD_OUT_IMAGES, int(label)).permutation(members)
        held_out[order[: -(-len(members) // 10)]] = True
    return ImageSet(images.train.take(~held_out), images.train.take(held_out), images.pixels)
