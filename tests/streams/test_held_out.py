"""Streams to choose hyperparameters on: tuning tasks, or a tenth of the training images."""

import numpy as np

from nccl_tf.streams import load_stream
from nccl_tf.streams.load import hold_out_examples
from nccl_tf.streams.sources.digits import load_digits


def rows(images):
    return {image.tobytes() for image in images}


def test_a_tenth_of_each_class_the_same_always_and_no_test_image():
    digits = load_digits()
    parts = hold_out_examples(digits)
    counts = np.bincount(digits.train.labels)
    assert np.bincount(parts.test.labels).tolist() == np.ceil(counts / 10).tolist()
    assert len(parts.train.labels) + len(parts.test.labels) == len(digits.train.labels)
    assert rows(parts.train.inputs) | rows(parts.test.inputs) == rows(digits.train.inputs)
    np.testing.assert_array_equal(parts.test.inputs, hold_out_examples(digits).test.inputs)


def test_without_tuning_tasks_every_task_holds_images_out():
    for seed in (0, 1):
        usual = load_stream("split_digits", seed=seed)
        tuning = load_stream("split_digits", seed=seed, tasks="tuning", max_tasks=3)
        assert tuning.task_classes == usual.task_classes[:3]
        for there, here in zip(usual, tuning, strict=False):
            assert rows(here.train.inputs) | rows(here.test.inputs) == rows(there.train.inputs)
            assert abs(len(here.test.labels) / there.num_train - 0.1) < 0.01


def test_tuning_tasks_are_those_that_no_seed_evaluates():
    given = {"num_tasks": 5, "tuning_tasks": 2}
    for seed in (0, 1):
        usual = load_stream("split_digits", seed=seed, **given)
        tuning = load_stream("split_digits", seed=seed, tasks="tuning", **given)
        assert tuning.task_classes == ((0, 1), (2, 3))
        assert not set(sum(tuning.task_classes, ())) & set(sum(usual.task_classes, ()))
        assert tuning.tuning == ()
    assert len(load_stream("permuted_digits", tasks="tuning", max_tasks=1, **given)) == 1
