"""Examples that nothing can be learned of, in every method: a row of NaN, weights of 0."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.methods.learners import RATES, build
from tests.methods.test_battery import CLASSES
from tests.tiny import tiny_batches


def learner_of(name, run_eagerly=True):
    learner = build(name, input_dtype="float32")
    learner.compile(keras.optimizers.SGD(RATES.get(name, 0.25)), run_eagerly=run_eagerly)
    return learner


@functools.cache
def _examples(task):
    ((x, labels, _),) = tiny_batches(task, 15, 15).as_numpy_iterator()
    return x["inputs"].astype(np.float32), labels


def examples(task, count=15):
    """The first arrays of `tiny_batches`, in float32, for the test to change."""
    return tuple(array[:count].copy() for array in _examples(task))


@pytest.mark.parametrize("name", CLASSES)
def test_examples_of_no_weight_and_a_row_of_nan_change_nothing(name):
    """A task of examples of weight 0 ends, and the next one is learned but for a bad step."""
    learner = learner_of(name)
    inputs, labels = examples(0, 5)
    learner.fit(inputs, labels, sample_weight=np.zeros(5), batch_size=5, verbose=0)
    for memory in learner.memories():
        assert int(memory.readable_count()) == 0
    later, labels = examples(1)
    later[7] = np.nan
    learner.fit(later, labels, batch_size=5, shuffle=False, verbose=0)
    assert int(learner.progress.skipped.numpy()) == 1
    assert int(learner.progress.tasks_ended.numpy()) == 2
    for variable in learner.network.weights:
        assert np.isfinite(variable.numpy()).all()
    assert learner.predict(tf.constant(inputs), verbose=0).shape[0] == 5


@pytest.mark.parametrize("name", ["slda", "ncm", "ranpac", "fecam"])
def test_statistics_skip_a_row_of_nan_in_graphs_too(name, optimized_graphs):
    """Where TensorFlow joins a dense layer and its relu, which makes 0 of NaN."""
    learner = learner_of(name, run_eagerly=False)
    inputs, labels = examples(0)
    inputs[7] = np.nan
    learner.fit(inputs, labels, batch_size=5, shuffle=False, verbose=0)
    assert int(learner.progress.skipped.numpy()) == 1
    rest = learner_of(name, run_eagerly=False)
    others = np.r_[0:5, 10:15]
    rest.fit(inputs[others], labels[others], batch_size=5, shuffle=False, verbose=0)
    for one, other in zip(learner.statistics, rest.statistics, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
