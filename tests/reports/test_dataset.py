"""The description of a data set."""

import numpy as np
import pytest

from nccl_tf.reports import dataset
from nccl_tf.streams.arrays import (
    Examples,
    ImageSet,
    PixelScaling,
)


def images(labels, side=3, channels=1, seed=0):
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 256, (len(labels), side, side, channels), dtype=np.uint8)
    return Examples(pixels, np.array(labels, np.int32))


def image_set(train, test):
    return ImageSet(train, test, PixelScaling())


def test_counts_fit_80_columns():
    both = image_set(images([0, 0, 1] + [2] * 1000), images([0, 1, 1, 2], seed=1))
    text = dataset.counts_table(both, 3)
    assert "1003 training and 4 test images of 3 classes" in text
    assert "0: 2/1" in text and "1: 1/2" in text and "2: 1000/1" in text
    many = images(np.repeat(np.arange(100), 30), side=1)
    lines = dataset.counts_table(image_set(many, many), 100).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 20


def test_channel_statistics_are_those_of_all_pixels():
    part = images([0] * 20, channels=3)
    largest, mean, std = dataset.channel_statistics(part)
    flat = part.inputs.reshape(-1, 3) / largest
    np.testing.assert_allclose(mean, flat.mean(0))
    np.testing.assert_allclose(std, flat.std(0))


def test_faults_and_repeated_images_are_found():
    train, test = images([0, 1, 1]), images([0, 0], seed=1)
    train.inputs[2] = 7
    test.inputs[1] = train.inputs[0]
    assert dataset.faults(image_set(train, test), 2) == [
        "1 training images are of one colour",
        "no test images of the classes 1",
    ]
    assert dataset.repeated(image_set(train, test)) == 1
    good = image_set(images([0, 1]), images([0, 1], seed=1))
    assert dataset.faults(good, 2) == [] and dataset.repeated(good) == 0


@pytest.mark.parametrize(("classes", "shape"), [(2, (2, 10)), (25, (3, 10))])
def test_the_contact_sheet_shows_the_first_images_of_each_class(classes, shape):
    part = images(np.tile(np.arange(classes), 12), side=4, channels=3)
    part.inputs[0, 0, 0] = 255
    sheet = dataset.contact_sheet(part, classes)
    assert sheet.dtype == np.uint8 and sheet.shape[2] == 3
    factor = sheet.shape[0] // (shape[0] * 6)
    assert sheet.shape[:2] == (shape[0] * 6 * factor, shape[1] * 6 * factor)
    small = sheet[::factor, ::factor]
    first_of_class_1 = part.inputs[1]
    row, column = (1, 0) if classes <= 10 else (0, 1)
    tile = small[row * 6 + 2 : row * 6 + 6, column * 6 + 2 : column * 6 + 6]
    np.testing.assert_array_equal(tile, first_of_class_1)
