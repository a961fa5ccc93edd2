"""Random changes of training images in front of the networks."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.networks import mlp, resnet18_reduced
from nccl_tf.networks.layers import augment_images

# Every pixel of an image has a value of its own, and none is 0, with which a crop fills.
IMAGE = np.arange(1, 129, dtype=np.uint8).reshape(16, 8, 1)
IMAGES = np.repeat(IMAGE[None], 300, axis=0)


def augmented(*names, seed=0):
    inputs = keras.Input(IMAGE.shape, dtype="uint8")
    model = keras.Model(inputs, augment_images(inputs, names, seed))
    return np.asarray(model(IMAGES, training=True)), np.asarray(model(IMAGES, training=False))


def moved(image, down, right):
    """The image moved by whole pixels, 0 where nothing came."""
    padded = np.pad(image, [(2, 2), (1, 1), (0, 0)])
    return padded[2 - down : 18 - down, 1 - right : 9 - right]


def test_a_crop_moves_each_image_by_whole_pixels():
    trained, evaluated = augmented("crop")
    np.testing.assert_array_equal(evaluated, IMAGES)
    places = [(down, right) for down in range(-2, 3) for right in range(-1, 2)]
    counts = [(trained == moved(IMAGE, *place)).all((1, 2, 3)).sum() for place in places]
    assert sum(counts) == len(IMAGES)
    assert min(counts) > 5  # of 20 on the average


def test_a_flip_mirrors_half_of_the_images():
    trained, evaluated = augmented("flip")
    np.testing.assert_array_equal(evaluated, IMAGES)
    mirrored = (trained == IMAGE[:, ::-1]).all((1, 2, 3))
    assert ((trained == IMAGE).all((1, 2, 3)) ^ mirrored).all()
    assert 110 < mirrored.sum() < 190


def test_draws_are_those_of_the_seed():
    (one, _), (same, _), (other, _) = (augmented("flip", "crop", seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize("make", [mlp, resnet18_reduced])
def test_evaluation_and_first_weights_are_those_without(make):
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    plain, other = (make((8, 8, 3), 4, augment=names) for names in ((), ("flip", "crop")))
    outputs = [network(images, training=False) for network in (plain, other)]
    np.testing.assert_array_equal(*outputs)
    assert (plain(images, training=True) != other(images, training=True)).numpy().any()


def test_the_memory_keeps_images_as_they_came():
    memory = nccl_tf.ReservoirMemory(300)
    learner = nccl_tf.ExperienceReplay(mlp(IMAGE.shape, 2, hidden=(), augment=("crop",)), memory)
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(IMAGES, np.arange(300) % 2, batch_size=100, verbose=0)
    np.testing.assert_array_equal(memory.read_all().inputs, IMAGES)


@pytest.mark.parametrize(
    ("shape", "augment", "said"),
    [
        ((8,), ("flip",), "expected images"),
        ((8, 8, 1), ("turn",), "flip, crop"),
        ((8, 8, 1), "flip", "names such as"),
        ((8, 8, 1), ("flip", "flip"), "names such as"),
    ],
)
def test_what_cannot_be_augmented_is_refused(shape, augment, said):
    with pytest.raises(UserError, match=said):
        mlp(shape, 2, augment=augment)
