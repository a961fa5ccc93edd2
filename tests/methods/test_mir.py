"""MIR: what it retrieves, a step against NumPy, and its limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.methods.mir import MIR, top_indices
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
from tests.tiny import tiny_network

G = gradient(*STREAM)
RNG = np.random.default_rng(8)
CANDIDATES = RNG.normal(size=(8, 2, 2, 1)), RNG.integers(0, 3, 8)


def losses(images, labels, weights):
    logits = images.reshape(len(labels), 4) @ weights
    return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]


def rows(images, labels, real=None):
    count = len(labels)
    return Batch(
        tf.constant(images), tf.constant(labels, tf.int64), tf.zeros(count, tf.int64),
        tf.ones(count) if real is None else tf.constant(real, tf.float32),
    )  # fmt: skip


def learner(count, replayed, alpha=ALPHA, of=network, **kwargs):
    memory = FixedMemory(*(part[:count] for part in CANDIDATES))
    model = MIR(of(), memory, candidates=count, memory_batch_size=replayed, **kwargs)
    model.compile(keras.optimizers.SGD(alpha), run_eagerly=True)
    return model


def test_a_step_by_hand():
    """The two of three candidates whose loss a step on the stream raises most."""
    images, labels = CANDIDATES[0][:3], CANDIDATES[1][:3]
    scores = losses(images, labels, WEIGHTS - ALPHA * G) - losses(images, labels, WEIGHTS)
    top = np.argsort(-scores)[:2]
    expected = WEIGHTS - ALPHA * (G + gradient(images[top], labels[top]))
    np.testing.assert_allclose(one_step(learner(3, 2)), expected, rtol=1e-12)


def test_an_empty_memory_is_sgd():
    model = learner(8, 2)
    model.memory.held = model.memory.held._replace(weights=tf.zeros(8))
    np.testing.assert_allclose(one_step(model), WEIGHTS - ALPHA * G, rtol=1e-12)


def check_the_most_interfering_are_retrieved():
    """For a small step s(z) is -alpha <grad l_z, g_J>, so the top have the lowest products."""
    model = learner(8, 3, alpha=2.0**-10)
    chosen = model.retrieve(rows(*STREAM), rows(*CANDIDATES))
    products = [np.sum(G * gradient(*(part[i : i + 1] for part in CANDIDATES))) for i in range(8)]
    expected = np.sort(np.argsort(products)[:3])
    assert products[expected[0]] < 0
    np.testing.assert_array_equal(chosen.inputs, CANDIDATES[0][expected])
    np.testing.assert_array_equal(chosen.labels, CANDIDATES[1][expected])


def test_the_most_interfering_are_retrieved():
    check_the_most_interfering_are_retrieved()


def test_padding_is_retrieved_last():
    scores, real = tf.constant([0.1, 9.0, 0.3, -5.0]), tf.constant([1.0, 0.0, 1.0, 1.0])
    assert top_indices(scores, real, 2).numpy().tolist() == [0, 2]
    assert top_indices(scores, real, 3).numpy().tolist() == [0, 2, 3]
    assert top_indices(scores, real, 4).numpy().tolist() == [0, 1, 2, 3]


def normed() -> keras.Model:
    flat = [keras.Input((2, 2, 1)), keras.layers.Flatten()]
    return keras.Sequential(
        [*flat, keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    )


@pytest.mark.parametrize("batch_norm", ["separate", "joint", "frozen"])
def test_retrieval_changes_no_variable(batch_norm):
    model = learner(8, 3, of=normed, batch_norm=batch_norm)
    before = [v.numpy() for v in model.variables]
    model.retrieve(rows(*STREAM), rows(*CANDIDATES))
    for old, new in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, new.numpy())


def test_fewer_candidates_than_replayed_are_refused():
    with pytest.raises(UserError, match="2 candidates for a memory batch of 3: expected at least"):
        MIR(tiny_network(), FixedMemory(*MEMORY), candidates=2, memory_batch_size=3)
