"""LwF: one step in NumPy for a single head and for heads, and the method's limits."""

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.methods.lwf import LwF, distillation
from tests.methods.hand import ALPHA, STREAM, WEIGHTS, gradient, network, stream
from tests.methods.learners import assert_same_values
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network

RNG = np.random.default_rng(2)
BEFORE = WEIGHTS + RNG.normal(size=WEIGHTS.shape)
LAMBDA, T = 1.5, 2.0


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def by_hand(units, images=STREAM[0]):
    """The distillation by one softmax over `units`, and its gradient X^T (p - q)/(T n)."""
    flat = images.reshape(len(images), 4)
    p, q = (softmax((flat @ w)[:, units] / T) for w in (WEIGHTS, BEFORE))
    gradient = np.zeros(WEIGHTS.shape)
    gradient[:, units] = flat.T @ (p - q) / T / len(images)
    return -np.sum(q * np.log(p), axis=1).mean(), gradient


def after_a_task(**arguments):
    """At the beginning of task 1, with BEFORE kept, WEIGHTS in the network, 0 and 1 old."""
    learner = LwF(network(), lwf_weight=LAMBDA, lwf_temperature=T, **arguments)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    labels = np.array([0, 1], np.int32)
    learner.fit(tf.data.Dataset.from_tensors((STREAM[0], labels)), verbose=0)
    learner.network.set_weights([BEFORE])
    learner.begin_task(1)
    learner.network.set_weights([WEIGHTS])
    return learner


def test_a_step_with_one_head():
    """One softmax over the classes 0 and 1; the loss runs over all three."""
    learner = after_a_task()
    history = learner.fit(stream(), verbose=0).history
    distilled, pull = by_hand([0, 1])
    expected = WEIGHTS - ALPHA * (gradient(*STREAM) + LAMBDA * pull)
    np.testing.assert_allclose(learner.network.get_weights()[0], expected, rtol=1e-12)
    np.testing.assert_allclose(history["distillation"][0], distilled, rtol=1e-5)


def test_a_step_with_heads_sums_over_those_of_ended_tasks():
    """In task 2 the loss of its only class is 0: the softmaxes over (0, 1) and (1, 2) are left."""
    heads = [[0, 1], [1, 2], [2]]
    learner = after_a_task(heads=heads)
    learner.fit(tf.data.Dataset.from_tensors((STREAM[0], np.array([1, 2]))), verbose=0)
    learner.network.set_weights([BEFORE])
    learner.begin_task(2)
    learner.network.set_weights([WEIGHTS])
    history = learner.fit(
        tf.data.Dataset.from_tensors((STREAM[0], np.array([2, 2]))), verbose=0
    ).history
    (one, first), (other, second) = by_hand([0, 1]), by_hand([1, 2])
    expected = WEIGHTS - ALPHA * LAMBDA * (first + second)
    np.testing.assert_allclose(learner.network.get_weights()[0], expected, rtol=1e-12)
    np.testing.assert_allclose(history["distillation"][0], one + other, rtol=1e-5)


def gradient_of(logits, before, units, temperature):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = distillation(logits, tf.constant(before), tf.constant(units), temperature)
    return tape.gradient(loss, logits).numpy()


Z, Z_BEFORE = RNG.normal(size=(2, 4, 5))
UNITS = np.array([[True, True, False, True, False]])


def test_units_that_are_not_old_get_exactly_no_gradient():
    slopes = gradient_of(Z, Z_BEFORE, UNITS, T)
    assert (slopes[:, ~UNITS[0]] == 0).all() and (slopes[:, UNITS[0]] != 0).all()
    assert (gradient_of(Z, Z_BEFORE, np.zeros((2, 5), bool), T) == 0).all()


def learners(heads, weight):
    for cls, arguments in ((nccl_tf.Finetune, {}), (LwF, {"lwf_weight": weight})):
        learner = cls(tiny_network(), heads=heads, **arguments)
        learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        yield learner


def test_it_is_fine_tuning_until_the_second_step_of_the_second_task():
    """The first task has no old class, and at first the network is as it was."""
    both = list(learners(TASK_CLASSES, 3.0))
    for learner in both:
        learner.fit(tiny_batches(0, 10), verbose=0)
    assert_same_values(*(learner.network.get_weights() for learner in both))
    one = tiny_batches(1).take(1)
    for learner in both:
        learner.fit(one, end_task=False, verbose=0)
    for left, right in zip(*(learner.network.get_weights() for learner in both), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-7)
    for learner in both:
        learner.fit(one, verbose=0)
    weights = zip(*(learner.network.get_weights() for learner in both), strict=True)
    assert any(np.abs(left - right).max() > 1e-5 for left, right in weights)


def test_the_copy_stays_within_a_task_and_moves_with_the_next():
    *_, learner = learners(None, 1.0)
    learner.fit(tiny_batches(0, 10), verbose=0)
    kept = learner.network.get_weights()
    learner.fit(tiny_batches(1, 10), end_task=False, verbose=0)
    assert_same_values([v.numpy() for v in learner.before.variables], kept)
    learner.end_task()
    learner.begin_task(2)
    now = learner.network.get_weights()
    assert_same_values([v.numpy() for v in learner.before.variables], now)
    assert any((a != b).any() for a, b in zip(now, kept, strict=True))


def test_known_classes_are_old_in_the_first_task():
    learner = LwF(network(), known_classes=[0, 1], lwf_weight=LAMBDA, lwf_temperature=T)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    learner.network.set_weights([BEFORE])
    learner.begin_task(0)
    learner.network.set_weights([WEIGHTS])
    learner.fit(stream(), verbose=0)
    expected = WEIGHTS - ALPHA * (gradient(*STREAM) + LAMBDA * by_hand([0, 1])[1])
    np.testing.assert_allclose(learner.network.get_weights()[0], expected, rtol=1e-12)


def test_classes_that_are_added_are_new_until_their_task_has_ended():
    *_, learner = learners(TASK_CLASSES, 1.0)
    learner.fit(tiny_batches(0, 5), verbose=0)
    learner.add_classes(2)
    expected = np.zeros((3, 6), bool)
    expected[0, :2] = True
    np.testing.assert_array_equal(learner.old_units.numpy(), expected)
    learner.fit(tiny_batches(1, 5), verbose=0)
    expected[1, 2:4] = True
    np.testing.assert_array_equal(learner.old_units.numpy(), expected)
