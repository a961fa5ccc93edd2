"""The handwritten digits of scikit-learn, which need no download."""

import numpy as np

from nccl_tf.streams.arrays import Examples, ExampleSet, PixelScaling
from nccl_tf.streams.seeding import DIGITS_TEST, generator

TEST_IMAGES = 360


def load_digits() -> ExampleSet:
    """Load 1,437 training and 360 test images, uint8 [n, 8, 8, 1] with values 0..16.

    The test images are a random sample, stratified by class and the same for every seed. Both parts
    keep the order of the file.
    """
    import sklearn.datasets

    raw = sklearn.datasets.load_digits()
    images = raw.images.astype(np.uint8)[..., np.newaxis]
    labels = raw.target.astype(np.int32)
    shares = np.bincount(labels) * TEST_IMAGES / len(labels)
    counts = shares.astype(int)
    # Largest remainder method: the rounded counts add up to TEST_IMAGES.
    by_remainder = np.argsort(counts - shares, kind="stable")
    counts[by_remainder[: TEST_IMAGES - counts.sum()]] += 1
    is_test = np.zeros(len(labels), bool)
    for label, count in enumerate(counts):
        members = np.flatnonzero(labels == label)
        is_test[generator(0, DIGITS_TEST, label).permutation(members)[:count]] = True
    examples = Examples(images, labels)
    return ExampleSet(examples.take(~is_test), examples.take(is_test), PixelScaling(1 / 16))
