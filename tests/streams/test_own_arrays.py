"""Streams from arrays that a user brings."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.streams import stream_from_arrays


def arrays(count=40, classes=4, side=5, seed=0):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return images, np.arange(count) % classes


def test_every_class_is_in_one_task_with_its_own_images():
    train, test = arrays(), arrays(8, seed=1)
    stream = stream_from_arrays(train, test, num_tasks=2, head="multi", seed=3)
    assert sorted(c for task in stream for c in task.classes) == [0, 1, 2, 3]
    assert stream.heads == stream.task_classes and stream.example_shape == (5, 5, 3)
    for task in stream:
        images, labels = task.train
        assert set(labels) == set(task.classes)
        np.testing.assert_array_equal(images, train[0][np.isin(train[1], task.classes)])


def test_a_permuted_stream_moves_pixels_only():
    train, test = arrays(), arrays(8, seed=1)
    stream = stream_from_arrays(train, test, num_tasks=3, kind="permuted", tuning_tasks=1)
    assert (len(stream), len(stream.tuning)) == (2, 1)
    images = stream[0].test.inputs
    assert (images != test[0]).any()
    np.testing.assert_array_equal(np.sort(images.reshape(8, -1)), np.sort(test[0].reshape(8, -1)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda images, labels: (images / 255, labels), "expected uint8"),
        (lambda images, labels: (images[..., 0], labels), "expected uint8"),
        (lambda images, labels: (images[:0], labels[:0]), "expected uint8"),
        (lambda images, labels: (images, labels[:-1]), "an integer from 0 up"),
        (lambda images, labels: (images, labels - 1), "an integer from 0 up"),
        (lambda images, labels: (images, labels.astype(float)), "an integer from 0 up"),
        (lambda images, labels: (images[:, :4], labels), "one shape"),
        (lambda images, labels: (images[labels > 0], labels[labels > 0]), "class 0 has no"),
    ],
)
def test_other_arrays_are_refused(change, said):
    with pytest.raises(UserError, match=said):
        stream_from_arrays(change(*arrays()), arrays(8, seed=1), num_tasks=2)


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="does not divide the 4 classes"):
        stream_from_arrays(arrays(), arrays(), num_tasks=3)
    with pytest.raises(UserError, match="single head"):
        stream_from_arrays(arrays(), arrays(), num_tasks=2, kind="permuted", head="multi")
