"""Rows of another length than a memory stores are refused in a sentence, and nothing is learned."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError

WORDS = 16
ROWS = np.random.default_rng(0).integers(0, WORDS, (40, 6)).astype("int32")
SAID = r"shape \(4,\), but the memory stores \(6,\)"


def made(name="er_reservoir"):
    inputs = keras.Input((None,), dtype="int32")
    outputs = keras.layers.Dense(WORDS)(keras.layers.Embedding(WORDS, 8)(inputs))
    kind = {
        "er_reservoir": nccl_tf.ExperienceReplay, "joint": nccl_tf.ExperienceReplay,
        "mir": nccl_tf.MIR, "nccl": nccl_tf.NCCL, "der": nccl_tf.DER,
    }[name]  # fmt: skip
    numbers = {"joint": {"batch_norm": "joint"}, "mir": {"candidates": 10}}.get(name, {})
    learner = kind(keras.Model(inputs, outputs), nccl_tf.ReservoirMemory(20), **numbers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    learner.compile(keras.optimizers.SGD(0.1), loss)
    return learner


def state_of(learner):
    return [v.numpy() for v in (*learner.network.variables, *learner.memory.variables)]


def arrays(length):
    return ROWS[:, :length], ROWS[:, :length]


def batches(*lengths):
    """A dataset of batches of 10 rows whose lengths it does not tell."""
    spec = tf.TensorSpec([None, None], tf.int32)

    def some():
        for length in lengths:
            yield ROWS[:10, :length], ROWS[:10, :length]

    return tf.data.Dataset.from_generator(some, output_signature=(spec, spec))


@pytest.mark.parametrize(
    "name",
    [
        "er_reservoir",
        "nccl",
        *(pytest.param(n, marks=pytest.mark.eager) for n in ("joint", "mir", "der")),
    ],
)
def test_a_task_of_shorter_rows(name):
    learner = made(name)
    learner.fit(*arrays(6), verbose=0)
    before = state_of(learner)
    with pytest.raises(UserError, match=SAID):
        learner.fit(*arrays(4), verbose=0)
    for one, other in zip(before, state_of(learner), strict=True):
        np.testing.assert_array_equal(one, other)
    learner.fit(*arrays(6), verbose=0)


@pytest.mark.parametrize(
    "verb", ["fit", pytest.param("train_on_batch", marks=pytest.mark.eager), "remember"]
)
def test_a_batch_of_shorter_rows(verb):
    learner = made()
    if verb == "fit":
        with pytest.raises(UserError, match=SAID):
            learner.fit(batches(6, 6, 4), verbose=0)
    else:
        call = getattr(learner, verb)
        call(*arrays(6))
        with pytest.raises(UserError, match=SAID):
            call(*arrays(4))
    stored = learner.memory.read_all()
    assert stored.inputs.shape == (20, 6)


def test_rows_of_a_stated_shape_in_a_dataset_that_tells_none():
    inputs = keras.Input((None,), dtype="int32")
    outputs = keras.layers.Dense(WORDS)(keras.layers.Embedding(WORDS, 8)(inputs))
    memory = nccl_tf.ReservoirMemory(20, (6,), "int32", label_shape=(6,))
    learner = nccl_tf.ExperienceReplay(keras.Model(inputs, outputs), memory)
    learner.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    learner.fit(batches(6, 6), verbose=0)
    with pytest.raises(UserError, match=SAID):
        learner.fit(batches(6, 4), verbose=0)
