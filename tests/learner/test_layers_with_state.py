"""Recurrent layers that keep a state between batches: it is the stream's, or they are refused."""

import keras
import numpy as np
import pytest

import nccl_tf

SHAPE, BATCH = (3, 2), 4


def network(bidirectional: bool = False) -> keras.Model:
    keras.utils.set_random_seed(1)
    layer = keras.layers.LSTM(3, stateful=True)
    if bidirectional:
        layer = keras.layers.Bidirectional(layer)
    return keras.Sequential([keras.Input(SHAPE, batch_size=BATCH), layer, keras.layers.Dense(2)])


def data() -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(0)
    return draws.normal(size=(2 * BATCH, *SHAPE)).astype("float32"), np.arange(2 * BATCH) % 2


def test_a_method_of_one_pass_has_the_state_of_plain_keras():
    x, y = data()
    plain, made = network(), network()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True)
    learner = nccl_tf.SI(made)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    for model in (plain, learner):
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    for ours, theirs in zip(made.layers[0].states, plain.layers[0].states, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


class Own(nccl_tf.Finetune):
    """May do anything."""


def test_others_are_refused_with_the_layer():
    memory = nccl_tf.ReservoirMemory(8)
    for make in (
        lambda made: nccl_tf.ExperienceReplay(made, memory),
        lambda made: nccl_tf.AGEM(made, memory),
        lambda made: nccl_tf.DERpp(made, memory),
        nccl_tf.EWC,
        nccl_tf.LwF,
        Own,
    ):
        with pytest.raises(nccl_tf.UserError, match="stateful"):
            make(network(bidirectional=True))
