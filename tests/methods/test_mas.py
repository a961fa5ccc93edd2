"""MAS: two tasks in NumPy, and the method's limits."""

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.methods.mas import MAS
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, gradient, network
from tests.methods.learners import equal_on_the_way
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


def learner_of(rate=ALPHA, in_graph=False, **arguments):
    learner = MAS(network(), mas_lambda=LAMBDA, **arguments)
    learner.compile(keras.optimizers.SGD(rate), run_eagerly=not in_graph)
    return learner


def test_two_tasks():
    """One step of the first, two of the second: the first of these is at the anchor."""
    learner = learner_of(in_graph=True)
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


def test_the_same_task_again_doubles_the_importance():
    one, two = (importances(*MEMORY, count=count) for count in (1, 2))
    np.testing.assert_allclose(two, 2 * one, rtol=1e-12)


def test_signs_of_examples_do_not_cancel():
    batch = np.abs(slopes(MEMORY[0], WEIGHTS).mean(axis=0))
    one_by_one = importances(*MEMORY)
    assert (one_by_one >= batch - 1e-12).all() and (one_by_one > batch + 0.01).any()


def test_outputs_of_zero_give_no_importance():
    assert (importances(*MEMORY, weights=0 * WEIGHTS) == 0).all()


def test_a_last_layer_times_s_counts_by_s_and_the_layers_below_by_s_squared():
    def of_scale(s):
        model = tiny_network()
        *below, kernel, bias = model.get_weights()
        model.set_weights([*below, s * kernel, s * bias])
        learner = MAS(model)
        learner.compile(keras.optimizers.SGD(0.0))
        learner.fit(tiny_batches(0), verbose=0)
        return [f.numpy() for f in learner.importances]

    *below, kernel, bias = of_scale(1.0)
    *scaled_below, scaled_kernel, scaled_bias = of_scale(4.0)
    for one, other in zip(below, scaled_below, strict=True):
        np.testing.assert_allclose(16 * one, other, rtol=1e-5)
    np.testing.assert_allclose(4 * kernel, scaled_kernel, rtol=1e-5)
    np.testing.assert_allclose(4 * bias, scaled_bias, rtol=1e-5)


def test_only_the_head_of_the_task_has_importance():
    learner = MAS(tiny_network(), heads=TASK_CLASSES)
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(tiny_batches(0), verbose=0)
    kernel = learner.importances[-2].numpy()
    assert (kernel[:, 2:] == 0).all() and (kernel[:, :2] > 0).any()


def test_it_is_fine_tuning_without_a_penalty_or_at_the_anchor():
    """With lambda 0 throughout; else in the first task and in the first step of the second."""
    tuned = nccl_tf.Finetune(tiny_network())
    free, held = (MAS(tiny_network(), mas_lambda=strength) for strength in (0.0, 0.5))
    assert equal_on_the_way(tuned, free, held) == [[True, True, True], [True, True, False]]
