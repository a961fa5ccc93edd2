"""What is noted of examples in the graph, by itself: wrong labels, and NaN at test."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.checks import WrongLabel
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.measures import NanCount, confusion, outputs_at_test

pytestmark = pytest.mark.eager


def whole(batch):
    return batch


def batch_of(labels, weights=None):
    labels = tf.constant(labels, tf.int64)
    weights = tf.ones(labels.shape) if weights is None else tf.constant(weights)
    return Batch(tf.zeros([len(labels), 1]), labels, tf.zeros(labels.shape, tf.int64), weights)


@pytest.mark.parametrize("alone", [True, False])
def test_the_first_wrong_label_is_raised_once(alone):
    notes, batch = WrongLabel(whole, alone), batch_of([1, 7, 9])
    data = (batch.inputs, batch.labels)
    found, wrong = notes.find(data, batch, ExampleLoss(), 3, None, [])
    np.testing.assert_array_equal(wrong, [False, True, True])
    np.testing.assert_array_equal(found.labels, [1, 0, 0])
    with pytest.raises(UserError, match="label 7"):
        notes.refuse(3, None, None, [])
    notes.refuse(3, None, None, [])


@pytest.mark.parametrize("alone", [True, False])
def test_a_wrong_label_of_padding_is_none(alone):
    notes, batch = WrongLabel(whole, alone), batch_of([1, 7], [1.0, 0.0])
    _, wrong = notes.find((batch.inputs, batch.labels), batch, ExampleLoss(), 3, None, [])
    assert not wrong.numpy().any()
    notes.refuse(3, None, None, [])


def test_a_task_without_a_head_is_noted_and_looked_up_as_the_first():
    notes = WrongLabel(whole, True)
    tasks = notes.find_tasks(tf.constant([1, 4], tf.int64), heads=2)
    np.testing.assert_array_equal(tasks, [1, 0])
    with pytest.raises(UserError, match="4"):
        notes.refuse(2, np.eye(2, dtype=bool), None, [])


def double(inputs, training):
    assert not training
    return 2 * (inputs["inputs"] if isinstance(inputs, dict) else inputs)


def test_nan_is_counted_but_for_padding_and_forgotten_when_told():
    count = NanCount(whole)
    inputs = tf.constant([[np.nan, 1.0], [1.0, 2.0], [np.nan, np.nan], [3.0, np.nan]])
    outputs = outputs_at_test(double, inputs)
    np.testing.assert_array_equal(np.isnan(outputs).all(1), [True, False, True, True])
    count.see(outputs, tf.constant([1.0, 1.0, 0.0, 1.0]))
    assert count.warning().startswith("2 of")
    assert count.warning() is None


PREDICTED = functools.partial(tf.argmax, axis=1)


def test_counts_of_right_and_predicted_classes_have_a_class_more_for_nan():
    inputs = tf.constant([[3.0, 0.0], [0.0, 1.0], [5.0, 0.0], [np.nan, 0.0]])
    labels, tasks = tf.constant([0, 1, 1, 0], tf.int64), tf.zeros([4], tf.int64)
    counts = confusion(double, PREDICTED, inputs, labels, tasks, classes=2, at_once=1)
    np.testing.assert_array_equal(counts, [[0, 0, 1], [1, 1, 1], [1, 0, 1], [0, 2, 1]])


def test_counts_of_more_classes_than_their_square_fits_into_32_bits():
    inputs = tf.one_hot([49_999, 7, 7], 50_000)
    labels = tf.constant([49_999, 49_998, 49_998], tf.int64)
    counts = confusion(
        double, PREDICTED, inputs, labels, tf.zeros([3], tf.int64), classes=50_000, at_once=1
    )
    np.testing.assert_array_equal(counts, [[49_999, 49_999, 1], [49_998, 7, 2]])
