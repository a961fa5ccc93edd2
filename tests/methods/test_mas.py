"""MAS: two tasks in NumPy, and the method's limits."""

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.methods.mas import MAS
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, gradient, network
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network

LAMBDA = 0.5


def slopes(images, weights):
    """d |x W|^2 / dW of each example: 2 x (x W)."""
    flat = images.reshape(len(images), 4)
    return 2 * flat[:, :, None] * (flat @ weights)[:, None]


def omega(images, weights):
    return np.abs(slopes(images, weights)).mean(axis=0)


def task(images, labels, steps=1):
    batch = tf.data.Dataset.from_tensors((images, labels.astype(np.int32)))
    return batch.repeat(steps)


def learner_of(rate=ALPHA, **arguments):
    learner = MAS(network(), mas_lambda=LAMBDA, **arguments)
    learner.compile(keras.optimizers.SGD(rate), run_eagerly=True)
    return learner


def test_two_tasks():
    """One step of the first, two of the second: the first of these is at the anchor."""
    learner = learner_of()
    learner.fit(task(*MEMORY), verbose=0)
    anchor = WEIGHTS - ALPHA * gradient(*MEMORY)
    first = omega(MEMORY[0], anchor)
    np.testing.assert_allclose(learner.importances[0].numpy(), first, rtol=1e-9)
    history = learner.fit(task(*STREAM, steps=2), verbose=0).history
    x = anchor - ALPHA * gradient(*STREAM, anchor)
    penalty = LAMBDA * np.sum(first * (x - anchor) ** 2)
    x = x - ALPHA * (gradient(*STREAM, x) + 2 * LAMBDA * first * (x - anchor))
    np.testing.assert_allclose(learner.network.get_weights()[0], x, rtol=1e-10)
    np.testing.assert_allclose(history["penalty"][0], penalty / 2, rtol=1e-5)
    expected = first + omega(STREAM[0], x)
    np.testing.assert_allclose(learner.importances[0].numpy(), expected, rtol=1e-9)


def importances(images, labels, weights=WEIGHTS, count=1):
    """Of tasks of the same examples, with the weights at rest."""
    learner = learner_of(rate=0.0)
    learner.network.set_weights([weights])
    for _ in range(count):
        learner.fit(task(images, labels), verbose=0)
    return learner.importances[0].numpy()


def test_labels_have_no_part():
    images, labels = MEMORY
    np.testing.assert_array_equal(importances(images, labels), importances(images, labels[::-1]))


def test_signs_of_examples_do_not_cancel():
    batch = np.abs(slopes(MEMORY[0], WEIGHTS).mean(axis=0))
    one_by_one = importances(*MEMORY)
    assert (one_by_one >= batch - 1e-12).all() and (one_by_one > batch + 0.01).any()


def test_only_the_head_of_the_task_has_importance():
    learner = MAS(tiny_network(), heads=TASK_CLASSES)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 15), verbose=0)
    kernel = learner.importances[-2].numpy()
    assert (kernel[:, 2:] == 0).all() and (kernel[:, :2] > 0).any()


def test_importances_at_places_are_means_by_their_weights():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3, 4, 2)).astype("float32")
    places = np.array([[1, 1, 0, 0], [2, 0, 1, 0], [1, 1, 1, 1]], "float32")
    network = keras.Sequential([keras.Input((4, 2)), keras.layers.Dense(3, use_bias=False)])
    learner = MAS(network, mas_lambda=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    learner.compile(keras.optimizers.SGD(0.1), loss)
    learner.fit(x, np.zeros((3, 4), int), sample_weight=places, batch_size=3, verbose=0)
    (kernel,) = network.get_weights()
    shares = places / places.sum(1, keepdims=True)
    slopes = np.einsum("np,npi,npj->nij", shares, x, 2 * (x @ kernel))
    expected = np.abs(slopes).mean(0)
    np.testing.assert_allclose(learner.importances[0].numpy(), expected, rtol=1e-5)


def test_places_that_the_loss_ignores_have_no_part():
    """Omega is that of the first place alone: 2 x^2 w."""
    net = keras.Sequential([keras.Input((2, 1)), keras.layers.Dense(2, use_bias=False)])
    net.set_weights([np.array([[1.0, 0.5]])])
    learner = MAS(net)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    learner.compile(keras.optimizers.SGD(0.0), loss, run_eagerly=True)
    learner.fit(np.array([[[1.0], [3.0]]], np.float32), np.array([[0, -1]]), verbose=0)
    np.testing.assert_allclose(learner.importances[0].numpy(), [[2.0, 1.0]], rtol=1e-5)
