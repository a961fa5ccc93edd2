"""The sample of a task on which importances are measured when it ends."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from tests.methods.hand import ALPHA, WEIGHTS, network
from tests.tiny import tiny_batches, tiny_network

RNG = np.random.default_rng(3)
IMAGES, LABELS = RNG.normal(size=(6, 2, 2, 1)), np.array([0, 1, 2, 0, 1, 2], np.int32)


def task(images, labels):
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(2)


def omega(images):
    flat = images.reshape(-1, 4)
    return np.abs(2 * flat[:, :, None] * (flat @ WEIGHTS)[:, None]).mean(axis=0)


def test_importances_are_means_over_the_sample():
    capacity = 4
    learner = nccl_tf.MAS(network(), importance_examples=capacity)
    learner.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    learner.fit(task(IMAGES, LABELS), end_task=False, verbose=0)
    stored = learner.sample.inputs.numpy()[:capacity]
    learner.end_task()
    np.testing.assert_allclose(learner.importances[0].numpy(), omega(stored), rtol=1e-9)
    assert len({image.tobytes() for image in stored}) == capacity
    assert {image.tobytes() for image in stored} <= {image.tobytes() for image in IMAGES}


def test_skipped_steps_are_not_measured():
    images = IMAGES.copy()
    images[2] = np.nan
    learner = nccl_tf.MAS(network())
    learner.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    learner.fit(task(images, LABELS), verbose=0)
    expected = omega(IMAGES[[0, 1, 4, 5]])
    np.testing.assert_allclose(learner.importances[0].numpy(), expected, rtol=1e-9)


def test_a_task_without_a_step_changes_no_importance():
    learner = nccl_tf.OnlineEWC(network())
    learner.compile(keras.optimizers.SGD(ALPHA))
    learner.begin_task(0)
    learner.end_task()
    assert (learner.importances[0].numpy() == 0).all()


def test_inputs_of_every_form_are_kept():
    """Two inputs by name, numbers that the network takes in another dtype, and rows of one."""
    inputs = {"a": keras.Input((3,), name="a"), "b": keras.Input((1,), name="b", dtype="int32")}
    embedded = keras.layers.Flatten()(keras.layers.Embedding(5, 2)(inputs["b"]))
    outputs = keras.layers.Dense(2)(keras.layers.Concatenate()([inputs["a"], embedded]))
    learner = nccl_tf.MAS(keras.Model(inputs, outputs))
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    rows = {"a": RNG.integers(0, 9, (8, 3)), "b": RNG.integers(0, 5, 8)}
    learner.fit(rows, RNG.integers(0, 2, 8), batch_size=4, verbose=0, end_task=False)
    stored = learner.sample.inputs
    np.testing.assert_array_equal(np.sort(stored["a"][:8], 0), np.sort(rows["a"], 0))
    np.testing.assert_array_equal(np.sort(stored["b"][:8, 0]), np.sort(rows["b"]))
    learner.end_task()
    assert all(np.isfinite(f.numpy()).all() and f.numpy().any() for f in learner.importances)


def test_it_goes_on_with_classes_that_are_added():
    learner = nccl_tf.OnlineEWC(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    before = learner.importances[-2].numpy()
    learner.add_classes(2)
    np.testing.assert_array_equal(learner.importances[-2].numpy()[:, :4], before)
    learner.fit(tiny_batches(1, 10), verbose=0)
    assert learner.importances[-2].numpy()[:, 4:].any()


def test_inputs_of_unknown_length_are_refused():
    inputs = keras.Input((None, 3))
    outputs = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(inputs))
    with pytest.raises(nccl_tf.UserError, match=r"inputs of shape \(None, None, 3\)"):
        nccl_tf.MAS(keras.Model(inputs, outputs))
