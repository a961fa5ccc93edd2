"""Permuted and split streams, on the digits."""

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.errors import UserError
from nccl_tf.streams import load_stream
from nccl_tf.streams.arrays import (
    Examples,
    ExampleSet,
    PixelScaling,
)
from nccl_tf.streams.catalog import DATASETS
from nccl_tf.streams.permuted import permuted_tasks
from nccl_tf.streams.plan import plan_stream
from nccl_tf.streams.sources.digits import load_digits
from nccl_tf.streams.split import assign_classes


def same(one, other):
    return all(
        np.array_equal(a, b)
        for first, second in zip(one, other, strict=True)
        for a, b in zip((*first.train, *first.test), (*second.train, *second.test), strict=True)
    )


def test_digits_are_scikit_learns():
    digits = load_digits()
    assert digits.train.inputs.shape == (1437, 8, 8, 1)
    assert digits.test.inputs.shape == (360, 8, 8, 1)
    assert digits.train.inputs.dtype == np.uint8
    assert digits.train.labels.dtype == np.int32
    assert digits.train.inputs.max() == 16
    assert digits.pixels == (1 / 16, None, None)
    raw = sklearn.datasets.load_digits()
    rows = {(*row.astype(int), label) for row, label in zip(raw.data, raw.target, strict=True)}
    parts = [
        {(*row, label) for row, label in zip(part.inputs.reshape(-1, 64), part.labels, strict=True)}
        for part in digits[:2]
    ]
    assert parts[0] | parts[1] == rows
    shares = np.bincount(digits.test.labels) / np.bincount(raw.target)
    np.testing.assert_allclose(shares, 360 / 1797, atol=0.006)


def test_same_seed_same_stream_and_another_seed_another():
    for name in ("permuted_digits", "split_digits"):
        stream = load_stream(name, seed=4)
        assert same(stream, load_stream(name, seed=4))
        assert not same(stream, load_stream(name, seed=5))


def test_digit_test_images_do_not_depend_on_the_seed():
    tests = [
        np.concatenate([task.test.inputs for task in load_stream("split_digits", seed=seed)])
        for seed in (0, 1)
    ]
    np.testing.assert_array_equal(*(np.unique(images, axis=0) for images in tests))


def test_pixels_are_permuted_in_train_and_test():
    images = (np.arange(6, dtype=np.uint8) * np.ones((5, 1), np.uint8)).reshape(5, 2, 3, 1)
    part = Examples(images, np.zeros(5, np.int32))
    plan = plan_stream(DATASETS["permuted_digits"], num_tasks=4, tuning_tasks=1)
    tasks, tuning = permuted_tasks(ExampleSet(part, part, PixelScaling()), plan, seed=0)
    permutations = []
    for task in (*tasks, *tuning):
        # Old pixel c holds c, so that a new image spells the permutation.
        permutation = task.train.inputs[0].ravel()
        assert sorted(permutation) == list(range(6))
        assert (task.train.inputs.reshape(5, 6) == permutation).all()
        assert (task.test.inputs.reshape(5, 6) == permutation).all()
        permutations.append(tuple(permutation))
    assert len(set(permutations)) == len(permutations)
    assert tuple(range(6)) not in permutations


def test_tuning_permutations_are_fixed_never_evaluated():
    def spell(task):
        return tuple(task.test.inputs[0].ravel())

    images = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1)
    part = Examples(images, np.zeros(1, np.int32))
    plan = plan_stream(DATASETS["permuted_digits"], num_tasks=8, tuning_tasks=3)
    evaluated, tuned = set(), set()
    for seed in range(20):
        tasks, tuning = permuted_tasks(ExampleSet(part, part, PixelScaling()), plan, seed)
        evaluated |= {spell(task) for task in tasks}
        tuned |= {spell(task) for task in tuning}
    assert len(evaluated) == 20 * 5
    assert len(tuned) == 3
    assert not evaluated & tuned


def test_permuted_tasks_draw_fresh_subsets():
    stream = load_stream("permuted_digits", examples_per_task=100)
    labels = [task.train.labels for task in stream]
    assert {len(label) for label in labels} == {100}
    assert stream[0].num_train == 100
    assert len({tuple(label) for label in labels}) == len(labels)
    assert len(np.unique(stream[0].train.inputs, axis=0)) == 100


def test_split_stream_cuts_the_classes():
    stream = load_stream("split_digits", seed=1)
    assert stream.heads == stream.task_classes
    assert sorted(sum(stream.task_classes, ())) == list(range(10))
    for task in stream:
        assert set(task.train.labels) == set(task.test.labels) == set(task.classes)
    assert sum(task.num_train for task in stream) == 1437
    assert sum(len(task.test.labels) for task in stream) == 360


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_tuning_classes_are_the_first_and_never_evaluated(seed):
    plan = plan_stream(DATASETS["split_cifar100"])
    evaluated, tuning = assign_classes(100, plan, seed)
    assert tuning == [tuple(range(i, i + 5)) for i in (0, 5, 10)]
    assert len(evaluated) == 17
    assert sorted(sum(evaluated, ())) == list(range(15, 100))


@pytest.mark.parametrize("name", ["permuted_digits", "split_digits"])
def test_more_examples_than_there_are(name):
    with pytest.raises(UserError, match=r"examples_per_task=5000.*choose at most"):
        load_stream(name, examples_per_task=5000)
