"""MC-SGD: the descent between two solutions against NumPy, and its limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.mc_sgd import MCSGD, line_gradient
from tests.methods.hand import (
    ALPHA,
    MEMORY,
    STREAM,
    WEIGHTS,
    FixedMemory,
    gradient,
    network,
    stream,
)
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

PRESENT = np.random.default_rng(8).normal(size=(2, 2, 2, 1)), np.array([0, 1])
DECAY, LINE_RATE, START = 0.5, 0.2, 0.3


class PastAndPresent(FixedMemory):
    """Reads MEMORY as past tasks, once one has ended, and PRESENT as the open one."""

    def __init__(self):
        super().__init__(*MEMORY)
        self.present = FixedMemory(*PRESENT).held
        self.stored = 0

    def readable_count(self):
        return tf.constant(self.stored)

    def read_task(self, task):
        return self.present

    def close_task(self, task_id):
        self.stored = 3


@pytest.mark.parametrize(("points", "fractions"), [(3, (0.0, 0.5, 1.0)), (1, (1.0,))])
def test_two_tasks_by_hand(points, fractions):
    old = WEIGHTS - ALPHA * DECAY * gradient(*STREAM)
    new = old - ALPHA * DECAY**2 * gradient(*STREAM, old)
    weights, velocity = old + START * (new - old), 0
    for _ in range(2):
        total = 0
        for s in fractions:
            here = gradient(*MEMORY, old + s * (weights - old))
            here = here + gradient(*PRESENT, new + s * (weights - new))
            total = total + s * here / len(fractions)
        velocity = 0.8 * velocity - LINE_RATE * total
        weights = weights + velocity
    learner = MCSGD(
        network(), PastAndPresent(), memory_batch_size=3, rate_decay=DECAY, line_points=points,
        line_start=START, line_learning_rate=LINE_RATE, line_steps=2,
        line_examples=0,
    )  # fmt: skip
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    learner.fit(stream(), verbose=0)
    np.testing.assert_allclose(learner.network.get_weights()[0], old, rtol=1e-12)
    learner.fit(stream(), verbose=0)
    np.testing.assert_allclose(learner.network.get_weights()[0], weights, rtol=1e-12)


class Scaled(keras.losses.SparseCategoricalCrossentropy):
    """The cross-entropy times a number."""

    def __init__(self, factor):
        super().__init__(from_logits=True)
        self.factor = factor

    def call(self, targets, outputs):
        return self.factor * super().call(targets, outputs)


def test_the_descent_has_the_loss_of_the_latest_compile():
    learner = MCSGD(tiny_network(), RingMemory(4, TASK_CLASSES, IMAGE_SHAPE), memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1), loss=Scaled(1.0), run_eagerly=True)
    for task in (0, 1):
        learner.fit(tiny_batches(task, 10), task_id=task, verbose=0)
    learner.compile(keras.optimizers.SGD(0.1), loss=Scaled(0.0), run_eagerly=True)
    learner.fit(tiny_batches(1, 10), task_id=1, verbose=0, end_task=False)
    trained, merged = learner.network.get_weights(), [v.numpy() for v in learner.merged.variables]
    learner.end_task()
    for old, new, now in zip(merged, trained, learner.network.get_weights(), strict=True):
        np.testing.assert_allclose(now, old + learner.line_start * (new - old), atol=1e-6)


def descended(old, new, past, present, steps):
    """The derivative of the mean loss over the points 0, 1/2 and 1 of both lines."""
    weights, velocity = old + START * (new - old), 0
    for _ in range(steps):
        total = 0
        for s in (0.5, 1.0):
            total = total + s * gradient(*past, old + s * (weights - old)) / 3
            total = total + s * gradient(*present, new + s * (weights - new)) / 3
        velocity = 0.8 * velocity - LINE_RATE * total
        weights = weights + velocity
    return weights


def test_three_tasks_by_hand_with_a_chain_and_a_sample_of_their_own():
    """As the authors have it: the third task goes on from the second's weights, not the merged."""
    random = np.random.default_rng(9)
    tasks = [(random.normal(size=(3, 2, 2, 1)), np.array([0, 2, 2], np.int32)) for _ in range(3)]
    # The ring keeps the last example of each class, the sample all three of the task.
    kept = [(images[[0, 2]], labels[[0, 2]]) for images, labels in tasks]
    ring = RingMemory(1, [(0, 2)] * 3, (2, 2, 1), "float64")
    learner = MCSGD(
        network(), ring, memory_batch_size=4, rate_decay=DECAY, line_points=3, line_start=START,
        line_learning_rate=LINE_RATE, line_steps=2, line_examples=3,
    )  # fmt: skip
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    trained = merged = WEIGHTS
    for number, data in enumerate(tasks):
        learner.fit(tf.data.Dataset.from_tensors(data), verbose=0)
        trained = trained - ALPHA * DECAY ** (number + 1) * gradient(*data, trained)
        if number:
            past = [np.concatenate(part) for part in zip(*kept[:number], strict=True)]
            merged = descended(merged, trained, past, data, steps=2)
        else:
            merged = trained
        np.testing.assert_allclose(learner.network.get_weights()[0], merged, rtol=1e-12)
    assert not np.allclose(merged, trained)
    assert int(learner.sample.seen.numpy()) == 0


def test_the_gradient_is_that_of_the_mean_loss_over_the_line():
    """Against finite differences of the mean of |w_s|^2/2 + sum w_s^4 over s."""
    start, end = np.array([0.3, -0.7]), np.array([1.1, 0.4])

    def loss(e):
        at = start + np.linspace(0, 1, 5)[:, None] * (e - start)
        return np.mean(np.sum(at**2 / 2 + at**4, axis=1))

    unit = np.eye(2) * 1e-6
    expected = [(loss(end + u) - loss(end - u)) / 2e-6 for u in unit]
    result = line_gradient(
        lambda w: [w[0] + 4 * w[0] ** 3], [tf.constant(start)], [tf.constant(end)], 5
    )
    np.testing.assert_allclose(result[0], expected, rtol=1e-8)


def tiny(method, **kwargs):
    ring = {"memory": RingMemory(2, TASK_CLASSES, IMAGE_SHAPE)} if method is MCSGD else {}
    learner = method(tiny_network(), **ring, **kwargs)
    learner.compile(keras.optimizers.SGD(0.25, momentum=0.8))
    return learner


@pytest.mark.nightly
def test_merging_renews_the_batch_norm_statistics():
    normed = keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            keras.layers.Flatten(),
            keras.layers.Dense(8),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Dense(4),
        ]
    )
    ring = RingMemory(2, TASK_CLASSES, IMAGE_SHAPE)
    learner = MCSGD(normed, ring, memory_batch_size=4, line_steps=30, line_examples=0)
    learner.compile(keras.optimizers.SGD(0.01))
    for task in (0, 1):
        learner.fit(tiny_batches(task), verbose=0)
    rows = [learner.memory.read_task(tf.constant(task)) for task in (0, 1)]
    images = np.concatenate([r.inputs for r in rows]).reshape(8, 16)
    dense, norm = normed.layers[1:3]
    expected = images @ dense.kernel + dense.bias
    # All four examples of the past and all four of the present are in each of the last passes.
    np.testing.assert_allclose(norm.moving_mean, expected.mean(axis=0), rtol=1e-3, atol=1e-2)


def test_what_is_remembered_moves_no_weight():
    learner = MCSGD(tiny_network(), RingMemory(5, TASK_CLASSES, IMAGE_SHAPE), line_steps=2)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 5), verbose=0)
    before = learner.network.get_weights()
    labels = np.arange(20) % 4
    images = np.random.default_rng(0).integers(0, 256, (20, *IMAGE_SHAPE), np.uint8)
    learner.remember({"inputs": images, "task": labels // 2}, labels)
    for old, new in zip(before, learner.network.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)
