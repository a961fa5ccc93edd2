"""Ids of embeddings and targets at places: what the network has no row or output for is refused."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.networks.inspection import vocabularies
from nccl_tf.records.checkpoints import variables_to_arrays
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task
from tests.tiny import renewed

RNG = np.random.default_rng(3)
COUNT, PLACES, TOKENS = 12, 4, 6
IDS, NEXT = RNG.integers(0, TOKENS, (2, COUNT, PLACES)).astype("int32")


def learner(jit_compile=False, ignored=None, mask_zero=False):
    table = keras.layers.Embedding(TOKENS, TOKENS, mask_zero=mask_zero)
    network = keras.Sequential([keras.Input((PLACES,), dtype="int32"), table])
    made = nccl_tf.Finetune(network)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored)
    made.compile(
        keras.optimizers.SGD(0.1), loss, metrics=["perplexity"], jit_compile=jit_compile,
        steps_per_execution=3,
    )  # fmt: skip
    return made


def with_one(values, number, dtype="int64"):
    changed = values.astype(dtype)
    changed[7, 2] = number
    return changed


def batches(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2)


def task(x, y):
    data = Examples(x, y)
    return Task(0, (), COUNT, lambda: data, lambda: data)


WRONG = {
    "a target above": (IDS, with_one(NEXT, 6), "received the label 6, expected .* 0 to 5"),
    "a target below": (IDS, with_one(NEXT, -1), "received the label -1"),
    "a target of 2**40": (IDS, with_one(NEXT, 2**40), f"received the label {2**40}"),
    "a float": (IDS, with_one(NEXT, 1.5, "float32"), "labels of dtype float32"),
    "an id above": (with_one(IDS, 6), NEXT, "received the id 6, expected numbers from 0 to 5"),
    "an id below": (with_one(IDS, -3), NEXT, "received the id -3"),
}
VERBS = {
    "fit": lambda made, x, y: made.fit(x, y, batch_size=2, verbose=0),
    "a data set": lambda made, x, y: made.fit(batches(x, y), verbose=0),
    "evaluate": lambda made, x, y: made.evaluate(x, y, verbose=0),
    "evaluate a data set": lambda made, x, y: made.evaluate(batches(x, y), verbose=0),
    "train_on_batch": lambda made, x, y: made.train_on_batch(x, y),
    "a task": lambda made, x, y: made.fit(task(x, y), verbose=0),
    "learn": lambda made, x, y: nccl_tf.learn(
        made, [task(x, y)], metric="perplexity", verbose=0
    ),
}  # fmt: skip


@functools.cache
def of_all_cases(**arguments):
    """A learner whose graphs serve all cases, and its first state."""
    made = learner(**arguments)
    return made, variables_to_arrays(made.state_variables)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", WRONG)
def test_what_the_network_has_no_place_for_is_refused(name, verb):
    x, y, said = WRONG[name]
    made = learner() if verb == "learn" else renewed(*of_all_cases())
    before = made.network.get_weights()[0]
    with pytest.raises(UserError, match=said):
        VERBS[verb](made, x, y)
    if verb != "a data set":
        np.testing.assert_array_equal(made.network.get_weights()[0], before)


@pytest.mark.seconds(30)  # XLA compiles the steps
@pytest.mark.parametrize("name", ["a target above", "an id above"])
def test_in_chunks_too(name):
    x, y, said = WRONG[name]
    made = learner(jit_compile=True)
    with pytest.raises(UserError, match=said):
        made.fit(batches(x, y), verbose=0)


def test_predict_refuses_ids_alone():
    made = learner()
    for data in (with_one(IDS, 6), tf.data.Dataset.from_tensor_slices(with_one(IDS, 6)).batch(2)):
        with pytest.raises(UserError, match="received the id 6"):
            made.predict(data, verbose=0)
    assert made.predict(IDS, verbose=0).shape == (COUNT, PLACES, TOKENS)


@pytest.mark.parametrize("left_out", ["weights", "ignored", "masked"])
@pytest.mark.parametrize("as_data", [False, True])
def test_a_place_that_does_not_count_may_have_any_target(left_out, as_data):
    x, y = IDS.copy(), with_one(NEXT, -1)
    weights = np.ones(y.shape, "float32")
    weights[7, 2] = 0
    if left_out == "masked":
        x[x == 0] = 1
        x[7, 2] = 0
    arguments = {"ignored": {"ignored": -1}, "masked": {"mask_zero": True}}.get(left_out, {})
    made = renewed(*of_all_cases(**arguments))
    columns = (x, y, weights) if left_out == "weights" else (x, y)
    if as_data:
        made.fit(tf.data.Dataset.from_tensor_slices(columns).batch(2), verbose=0)
    else:
        made.fit(*columns[:2], sample_weight=columns[2] if len(columns) > 2 else None, verbose=0)
    assert int(made.skipped.numpy()) == 0
    with pytest.raises(UserError, match="received the label 9"):
        wrong = y.copy()
        wrong[0, 0], x[0, 0], weights[0, 0] = 9, 1, 1
        made.fit(x, wrong, sample_weight=weights if left_out == "weights" else None, verbose=0)


def test_vocabularies_are_found_in_models_within():
    table = keras.layers.Embedding(7, 3)
    first, mask = keras.Input((4,), dtype="int32"), keras.Input((4,), dtype="int32")
    scaled = keras.ops.expand_dims(keras.ops.cast(mask, "float32"), -1)
    inner = keras.Model({"ids": first, "mask": mask}, table(first) * scaled)
    outer = {name: keras.Input((4,), dtype="int32") for name in ("ids", "mask")}
    network = keras.Model(outer, keras.layers.Dense(2)(inner(outer)))
    assert vocabularies(network) == [7, None]
    hashed = keras.Input((4,), dtype="int32")
    assert vocabularies(keras.Model(hashed, table(hashed % 7))) == [None]


@pytest.mark.eager
def test_without_graphs_a_batch_of_arrays_is_predicted_and_checked():
    """Keras hands arrays over as they are then."""
    made = learner()
    np.testing.assert_array_equal(made.predict_on_batch(IDS), made.predict(IDS, verbose=0))
    with pytest.raises(UserError, match="received the id 6"):
        made.predict_on_batch(with_one(IDS, 6))
