"""Batches of fixed shape: padding, order, weights, static shapes."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.batches import IndexedBatches, pad_order
from nccl_tf.streams.task import Task

COUNT = 23


@pytest.fixture
def task():
    """Images whose pixels all hold the number of the example."""
    images = np.arange(COUNT, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 3, 1), np.uint8)
    examples = Examples(images, np.arange(COUNT, dtype=np.int32) % 4)
    return Task(3, (0, 1, 2, 3), COUNT, lambda: examples, lambda: examples)


def read(dataset):
    """Numbers of the examples [steps, B] and weights [steps, B]; checks labels and task ids."""
    numbers, weights = [], []
    for features, label, weight in dataset.as_numpy_iterator():
        number = features["inputs"][:, 0, 0, 0]
        assert (features["inputs"] == number[:, None, None, None]).all()
        assert (label == number % 4).all()
        assert (features["task"] == 3).all()
        numbers.append(number)
        weights.append(weight)
    return np.array(numbers), np.array(weights)


def test_no_pipeline_is_tuned(task):
    """The thread that tunes can hang a pipeline that is given up."""
    own = [task.train_batches(), task.test_batches(), task.epochs().dataset()]
    for dataset in own:
        assert dataset.options().autotune.enabled is False


@given(n=st.integers(1, 60), batch_size=st.integers(1, 70))
def test_padding_repeats_examples_of_the_last_batch(n, batch_size):
    order = np.random.default_rng(0).permutation(n)
    indices, weights = (part.reshape(-1, batch_size) for part in pad_order(order, batch_size))
    assert len(indices) == len(weights) == -(-n // batch_size)
    np.testing.assert_array_equal(indices[weights == 1], order)
    assert weights.sum() == n
    real, padding = indices[-1][weights[-1] == 1], indices[-1][weights[-1] == 0]
    assert set(padding) <= set(real)


@pytest.mark.parametrize("batch_size", [1, 5, 23, 40])
def test_every_pass_has_every_example_once_at_weight_one(task, batch_size):
    dataset = task.train_batches(batch_size, seed=1, passes=3)
    numbers, weights = read(dataset)
    assert len(numbers) == dataset.cardinality() == task.steps(batch_size, 3)
    for number, weight in zip(np.split(numbers, 3), np.split(weights, 3), strict=True):
        assert sorted(number[weight == 1]) == list(range(COUNT))


def test_shapes_are_static_and_types_as_promised(task):
    expected = (
        {
            "inputs": tf.TensorSpec((5, 2, 3, 1), tf.uint8),
            "task": tf.TensorSpec((5,), tf.int32),
        },
        tf.TensorSpec((5,), tf.int32),
        tf.TensorSpec((5,), tf.float32),
    )
    assert task.train_batches(5).element_spec == expected
    assert task.test_batches(5).element_spec == expected


def test_order_is_given_by_seed_task_and_pass(task):
    def order(seed=0, passes=1, task=task):
        return read(task.train_batches(COUNT, seed, passes))[0].tolist()

    assert order() == order()
    assert order(seed=1) != order()
    first, second = order(passes=2)
    assert [first] == order()
    assert second != first
    other = Task(4, task.classes, COUNT, task._train, task._test)
    next_order = [f["inputs"][:, 0, 0, 0] for f, _, _ in other.train_batches(COUNT)]
    assert np.array(next_order).tolist() != order()


@pytest.mark.parametrize("as_dataset", [False, True])
def test_an_epoch_has_an_order_of_its_own_with_and_without_a_dataset(task, as_dataset):
    """That of its pass, however often it is read."""
    batches = task.epochs(5, seed=1, epochs=3)
    read_from = batches.dataset(changes=True) if as_dataset else batches
    assert len(list(read_from)) == task.steps(5)
    passes = np.split(read(task.train_batches(5, seed=1, passes=3))[0], 3)
    for epoch in (0, 2, 1, 1):
        batches.begin_epoch(epoch)
        numbers = [features["inputs"][:, 0, 0, 0] for features, _, _ in read_from]
        np.testing.assert_array_equal(numbers, passes[epoch])


def test_rows_are_taken_in_batches_of_one_size():
    """Seven examples in batches of three, the last of one."""
    columns = (np.arange(7.0), np.arange(7))
    batches = IndexedBatches(columns, 3, 7, lambda _: (np.arange(7)[::-1],))
    assert (batches.count, batches.fixed_size) == (3, None)
    assert IndexedBatches(columns, 3, 6, batches.order).fixed_size == 3
    for most, expected in [(1, [1, 1, 1]), (2, [2, 1]), (5, [2, 1])]:
        reading, taken = iter(batches), []
        while (rows := reading.take(most)) is not None:
            taken.append(rows[0])
        assert [len(part) for part in taken] == expected
        assert np.concatenate([part.ravel() for part in taken]).tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert [labels.numpy().tolist() for _, labels in batches] == [[6, 5, 4], [3, 2, 1], [0]]


def test_the_order_is_that_of_the_epoch_in_which_a_reading_begins(task):
    batches = task.epochs(COUNT, epochs=2)
    reading = iter(batches)
    batches.begin_epoch(1)
    assert reading.take(1)[0].tolist() == [task._order(0, 1).tolist()]


def test_batch_size_does_not_change_the_order(task):
    small, weights = read(task.train_batches(4))
    assert small[weights == 1].tolist() == read(task.train_batches(COUNT))[0][0].tolist()


def test_test_batches_are_in_file_order(task):
    numbers, weights = read(task.test_batches(10))
    assert numbers[weights == 1].tolist() == list(range(COUNT))
    assert weights[-1].tolist() == [1] * 3 + [0] * 7


@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_bad_counts_are_refused(task, value):
    with pytest.raises(UserError, match="batch_size"):
        task.train_batches(value)
    with pytest.raises(UserError, match="batch_size"):
        task.test_batches(value)
    with pytest.raises(UserError, match="passes"):
        task.train_batches(passes=value)
    with pytest.raises(UserError, match="batch_size"):
        task.steps(value)
