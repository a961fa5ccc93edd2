"""Online EWC: two tasks in NumPy, and the method's limits."""

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.methods.online_ewc import OnlineEWC
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, gradient, network
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network

LAMBDA, GAMMA = 0.7, 0.75


def fisher(images, labels, weights):
    """The mean of p(y|x) g^2 over examples, g the gradient of one."""
    total = 0
    for i in range(len(labels)):
        logits = images[i].reshape(4) @ weights
        p = np.exp(logits[labels[i]]) / np.exp(logits).sum()
        total += p * gradient(images[i : i + 1], labels[i : i + 1], weights) ** 2
    return total / len(labels)


def task(images, labels, steps=1):
    batch = tf.data.Dataset.from_tensors((images, labels.astype(np.int32)))
    return batch.repeat(steps)


def learner_of(rate=ALPHA, **arguments):
    learner = OnlineEWC(network(), **{"ewc_lambda": LAMBDA, "ewc_gamma": GAMMA, **arguments})
    learner.compile(keras.optimizers.SGD(rate), run_eagerly=True)
    return learner


def test_two_tasks():
    """One step of the first, two of the second: the first of these is at the anchor."""
    learner = learner_of()
    learner.fit(task(*MEMORY), verbose=0)
    anchor = WEIGHTS - ALPHA * gradient(*MEMORY)
    first = fisher(*MEMORY, anchor)
    np.testing.assert_allclose(learner.importances[0].numpy(), first, rtol=1e-9)
    history = learner.fit(task(*STREAM, steps=2), verbose=0).history
    x = anchor - ALPHA * gradient(*STREAM, anchor)
    penalty = LAMBDA * np.sum(first * (x - anchor) ** 2)
    x = x - ALPHA * (gradient(*STREAM, x) + 2 * LAMBDA * first * (x - anchor))
    np.testing.assert_allclose(learner.network.get_weights()[0], x, rtol=1e-10)
    np.testing.assert_allclose(history["penalty"][0], penalty / 2, rtol=1e-5)
    second = GAMMA * first + fisher(*STREAM, x)
    np.testing.assert_allclose(learner.importances[0].numpy(), second, rtol=1e-9)
    np.testing.assert_allclose(learner.anchors[0].numpy(), x, rtol=1e-10)


def test_only_the_head_of_the_task_has_importance():
    learner = OnlineEWC(tiny_network(), heads=TASK_CLASSES)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 15), verbose=0)
    kernel = learner.importances[-2].numpy()
    assert (kernel[:, 2:] == 0).all() and (kernel[:, :2] > 0).any()
    assert all((f.numpy() >= 0).all() for f in learner.importances)
