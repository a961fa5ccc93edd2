"""Several outputs, joined into one and split in the loss, as docs/several_outputs.md shows."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(12, 4)).astype("float32")
KIND = RANDOM.integers(0, 3, 12)
SIZE = RANDOM.normal(size=12).astype("float32")
TARGETS = np.column_stack([KIND, SIZE]).astype("float32")
WEIGHTS = np.linspace(0.5, 2, 12).astype("float32")


def network_of_two() -> keras.Model:
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(5, "tanh")(inputs)
    outputs = [
        keras.layers.Dense(3, name="kind")(hidden),
        keras.layers.Dense(1, name="size")(hidden),
    ]
    return keras.Model(inputs, outputs)


def joined(network: keras.Model) -> keras.Model:
    return keras.Model(network.input, keras.layers.Concatenate()(network.outputs))


def loss(targets, outputs):
    kind = keras.losses.sparse_categorical_crossentropy(
        targets[:, 0], outputs[:, :3], from_logits=True
    )
    return kind + 0.5 * keras.losses.mean_squared_error(targets[:, 1:], outputs[:, 3:])


def kind(targets, outputs):
    return keras.metrics.sparse_categorical_accuracy(targets[:, 0], outputs[:, :3])


def size(targets, outputs):
    return keras.metrics.mean_absolute_error(targets[:, 1:], outputs[:, 3:])


@pytest.mark.parametrize("weights", [None, pytest.param(WEIGHTS, marks=pytest.mark.eager)])
def test_steps_without_memory_are_those_of_keras_on_two_losses(weights):
    plain = network_of_two()
    learner = nccl_tf.Finetune(joined(keras.models.clone_model(plain)))
    learner.network.set_weights(plain.get_weights())
    plain.compile(
        keras.optimizers.SGD(0.1),
        loss=[keras.losses.SparseCategoricalCrossentropy(from_logits=True), "mse"],
        loss_weights=[1, 0.5],
    )
    learner.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=[kind, size])
    for part in (slice(0, 4), slice(4, 8), slice(8, 12)):
        some = None if weights is None else weights[part] / weights[part].mean()
        by_output = None if some is None else [some, some]
        plain.train_on_batch(X[part], [KIND[part], SIZE[part]], sample_weight=by_output)
        learner.train_on_batch(X[part], TARGETS[part], sample_weight=some)
    for one, other in zip(plain.get_weights(), learner.network.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    kinds, sizes = plain.predict(X, verbose=0)
    found = learner.evaluate(X, TARGETS, verbose=0, return_dict=True)
    assert found["kind"] == pytest.approx(np.mean(kinds.argmax(axis=1) == KIND), abs=1e-6)
    assert found["size"] == pytest.approx(np.abs(sizes[:, 0] - SIZE).mean(), abs=1e-6)


@pytest.mark.eager
def test_dark_replay_stores_the_targets_and_outputs_of_both():
    learner = nccl_tf.DERpp(joined(network_of_two()), nccl_tf.ReservoirMemory(12))
    learner.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=[kind, size])
    learner.fit(X, TARGETS, batch_size=4, verbose=0)
    # A row more takes what is not stored.
    stored = learner.memory.labels.numpy()[:12]
    np.testing.assert_array_equal(np.sort(stored, axis=0), np.sort(TARGETS, axis=0))
    assert learner.memory.columns["logits"].shape == (13, 4)


def test_what_is_several_is_refused_with_the_way_out():
    said = r"docs/several_outputs\.md"
    with pytest.raises(UserError, match=f"list of 2, expected one tensor.*{said}"):
        nccl_tf.Finetune(network_of_two())
    learner = nccl_tf.Finetune(joined(network_of_two()))
    for losses in (["mse", "mae"], {"kind": "mse", "size": "mae"}):
        with pytest.raises(
            UserError,
            match=f"received the loss .*, a {type(losses).__name__}, expected one.*{said}",
        ):
            learner.compile("sgd", loss=losses)
    learner.compile("sgd", loss=loss)
    for labels in ([KIND, SIZE], (KIND, SIZE), {"kind": KIND, "size": SIZE}):
        for verb in (learner.fit, learner.evaluate):
            with pytest.raises(UserError, match=f"labels in a .* of 2.*{said}"):
                verb(X, labels, verbose=0)
    assert not learner.progress.task_is_open.numpy()
    data = tf.data.Dataset.from_tensor_slices((X, {"kind": KIND, "size": SIZE})).batch(4)
    with pytest.raises(UserError, match=f"labels in a dict of 2.*{said}"):
        learner.fit(data, verbose=0)
