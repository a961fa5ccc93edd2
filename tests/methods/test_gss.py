"""GSS-Greedy: its steps against NumPy, what it admits, and its limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.scored import ScoredMemory
from nccl_tf.methods.gss import FIRST_COSINE, GSSGreedy, KnownGradients
from tests.methods.hand import (
    ALPHA,
    MEMORY,
    STREAM,
    WEIGHTS,
    FixedMemory,
    gradient,
    network,
    one_step,
)
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network

pytestmark = pytest.mark.eager


class Offered(FixedMemory, ScoredMemory):
    """Notes what it is offered; full."""

    def has_room(self):
        return tf.constant(False)

    def next_seed(self):
        return tf.constant([0, 1], tf.int64)

    def offer(self, batch, cosines, batch_cosine):
        self.offered = cosines, batch_cosine


def learner(iterations, real=(1, 1, 1), memory_class=Offered, memory_batch_size=3, **kwargs):
    memory = memory_class(*MEMORY)
    memory.held = memory.held._replace(weights=tf.constant(real, tf.float32))
    return GSSGreedy(
        network(), memory, memory_batch_size=memory_batch_size, gss_gradients=1,
        gss_iterations=iterations, **kwargs,
    )  # fmt: skip


def cosine(one, other):
    return np.sum(one * other) / np.sqrt(np.sum(one * one) * np.sum(other * other))


@pytest.mark.parametrize("iterations", [1, 3])
def test_steps_alternate_between_stream_and_memory(iterations):
    weights = WEIGHTS
    for _ in range(iterations):
        weights = weights - ALPHA * gradient(*STREAM, weights)
        weights = weights - ALPHA * gradient(*MEMORY, weights)
    np.testing.assert_allclose(one_step(learner(iterations)), weights, rtol=1e-12)


def test_an_empty_memory_is_sgd_step_after_step():
    for iterations in (1, 2):
        weights = WEIGHTS
        for _ in range(iterations):
            weights = weights - ALPHA * gradient(*STREAM, weights)
        after = one_step(learner(iterations, real=(0, 0, 0)))
        np.testing.assert_allclose(after, weights, rtol=1e-12)


def rows(images, labels, tasks=0):
    count = len(labels)
    return Batch(
        tf.constant(images), tf.constant(labels, tf.int64), tf.fill([count], tasks), tf.ones(count)
    )


def compiled(model):
    model.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    return model


def test_cosines_by_hand_are_the_highest_with_any_memory_batch():
    """Two memory batches of two; the second pair is the first of MEMORY twice."""
    model = compiled(learner(1, memory_batch_size=2))
    order = [1, 2, 0, 0]
    drawn = rows(MEMORY[0][order], MEMORY[1][order])
    known = [gradient(*(part[pair] for part in MEMORY)) for pair in ([1, 2], [0, 0])]
    examples, ours = model.cosines(rows(*STREAM), drawn, tf.constant(True))
    for i in range(2):
        own = gradient(*(part[i : i + 1] for part in STREAM))
        np.testing.assert_allclose(examples[i], max(cosine(own, g) for g in known), rtol=1e-6)
    expected = max(cosine(gradient(*STREAM), g) for g in known)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_the_memory_batches_of_a_cosine_are_random_groups(monkeypatch):
    """Of a memory that is drawn whole, and that would come in the order of its slots."""
    model, image = full()
    seen = []

    def cosines(batch, drawn, room):
        seen.append((drawn.inputs.numpy()[:, 0, 0, 0], drawn.weights.numpy()))
        return tf.ones(2), tf.constant(1.0)

    monkeypatch.setattr(model, "cosines", cosines)
    model.memory.inputs.assign(
        np.arange(model.memory.inputs.shape[0])[:, None, None, None] + image[:1]
    )
    for _ in range(20):
        model.store(rows(image[:2], np.zeros(2)), None)
    orders = {tuple(firsts[:4]) for firsts, _ in seen}
    assert len(orders) > 5
    for firsts, weights in seen:
        assert sorted(firsts[:4]) == [1, 2, 3, 4]
        np.testing.assert_array_equal(weights, np.arange(len(weights)) < 4)


def test_the_highest_cosine_is_over_all_variables_of_those_that_count():
    random = np.random.default_rng(3)
    sides = (2, 3), (5,), (1, 2, 2)
    known = [random.normal(size=(4, *side)) for side in sides]
    known[0][1], known[1][1], known[2][1] = 0, 0, 0  # of a memory batch without examples
    gradient = [random.normal(size=side) for side in sides]
    flat = np.concatenate([part.reshape(4, -1) for part in known], axis=1)
    vector = np.concatenate([part.ravel() for part in gradient])
    with np.errstate(invalid="ignore"):
        cosines = flat @ vector / np.linalg.norm(flat, axis=1) / np.linalg.norm(vector)
    for counted in ([True, False, True, True], [False, False, True, False]):
        compared = KnownGradients.of(list(map(tf.constant, known)), tf.constant(counted))
        highest = compared.highest_cosine(list(map(tf.constant, gradient)))
        np.testing.assert_allclose(highest, cosines[counted].max(), rtol=1e-6)


def test_the_cosines_with_an_empty_memory_are_the_first_ones():
    model = compiled(learner(1))
    drawn = rows(*MEMORY)._replace(weights=tf.zeros(3))
    examples, ours = model.cosines(rows(*STREAM), drawn, tf.constant(True))
    np.testing.assert_allclose([*examples, ours], FIRST_COSINE)


def full(capacity=4):
    """A learner with a linear network of zeros for two classes, and a full memory of class 0.

    There the gradient of an example with label 1 is minus that with label 0.
    """
    inputs = keras.Input((2, 2, 1), dtype="float64")
    flat = keras.layers.Flatten(dtype="float64")(inputs)
    outputs = keras.layers.Dense(2, kernel_initializer="zeros", dtype="float64")(flat)
    memory = ScoredMemory(capacity, (2, 2, 1), example_dtype="float64")
    model = GSSGreedy(keras.Model(inputs, outputs), memory, memory_batch_size=capacity)
    image = np.tile(np.reshape([1.0, -2.0, 0.5, 3.0], (1, 2, 2, 1)), (capacity, 1, 1, 1))
    stored = rows(image, np.zeros(capacity))
    memory.offer(stored, tf.linspace(0.0, 0.3, capacity), tf.constant(FIRST_COSINE))
    return compiled(model), image


def check_admission(label, admitted):
    model, image = full()
    model.store(rows(image[:2], np.full(2, label), tasks=1), None)
    stored = model.memory.tasks.numpy()[:4]
    assert stored.sum() == admitted
    if admitted:
        np.testing.assert_allclose(model.memory.scores.numpy()[:4][stored == 1], 0, atol=1e-6)


def test_doubles_are_rejected_and_opposites_are_admitted():
    check_admission(label=0, admitted=0)
    check_admission(label=1, admitted=2)


def test_the_capacity_holds_and_scores_are_from_0_to_2():
    model = GSSGreedy(tiny_network(), ScoredMemory(7, IMAGE_SHAPE), memory_batch_size=4)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    for task in (0, 1):
        model.fit(tiny_batches(task, count=10), verbose=0)
    scores = model.memory.scores.numpy()[:7]
    assert int(model.memory.stored.numpy()) == 7
    assert (scores >= 0).all() and (scores <= 2).all()
    assert (model.memory.inputs.numpy()[:7] == 255).any(axis=(1, 2, 3)).all()
