"""Dropout: what is dropped, and that the draws are the model's own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.networks import mlp
from nccl_tf.networks.layers import CountedDropout, without_dropout

SHAPE = (8, 8, 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (4, *SHAPE)).astype(np.uint8)


@pytest.mark.parametrize("rate", [0.2])
def test_drops_the_share_and_scales_what_it_keeps(rate):
    outputs = CountedDropout(rate, seed=1)(tf.ones((100, 400)), training=True).numpy()
    assert set(np.unique(outputs)) == {0.0, np.float32(1 / np.float32(1 - rate))}
    assert np.mean(outputs == 0) == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / 4e4))


def test_draws_anew_each_time_and_nothing_in_evaluation():
    layer, inputs = CountedDropout(0.5, seed=1), tf.ones((10, 20))
    first, second = layer(inputs, training=True), layer(inputs, training=True)
    assert (first.numpy() != second.numpy()).any()
    np.testing.assert_array_equal(layer(inputs, training=False), inputs)
    assert int(layer.draws.numpy()) == 2


def test_layers_of_a_network_draw_independently():
    network = mlp(SHAPE, 10, hidden=(50, 50, 50), dropout=0.5)
    seeds = {layer.seed for layer in network.layers if isinstance(layer, CountedDropout)}
    assert len(seeds) == 3


def test_xla_draws_the_same():
    one, other = (CountedDropout(0.3, seed=5) for _ in range(2))
    inputs = tf.ones((7, 33))
    compiled = tf.function(lambda x: other(x, training=True), jit_compile=True)
    for _ in range(3):
        np.testing.assert_array_equal(one(inputs, training=True), compiled(inputs))


def test_a_saved_layer_goes_on_with_its_draws(tmp_path):
    network = mlp(SHAPE, 10, dropout=0.5)
    network(IMAGES, training=True)
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    for _ in range(2):
        one, other = network(IMAGES, training=True), loaded(IMAGES, training=True)
        np.testing.assert_array_equal(one, other)


def test_weights_are_those_without_dropout():
    make, layers = mlp, 2
    plain, dropping = make(SHAPE, 10, seed=3), make(SHAPE, 10, dropout=0.5, seed=3)
    for one, other in zip(plain.trainable_variables, dropping.trainable_variables, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(plain(IMAGES), dropping(IMAGES))
    assert len(dropping.layers) - len(plain.layers) == layers
    assert len(make(SHAPE, 10, dropout=0.0).layers) == len(plain.layers)


def test_can_be_left_out_while_training():
    network = mlp(SHAPE, 10, dropout=0.5)
    with without_dropout(network):
        np.testing.assert_array_equal(network(IMAGES, training=True), network(IMAGES))
    assert (network(IMAGES, training=True).numpy() != network(IMAGES).numpy()).any()


class Block(keras.layers.Layer):
    """A layer that is no model, around another."""

    def __init__(self, inner):
        super().__init__()
        self.parts = [inner]

    def call(self, inputs, training=False):
        return self.parts[0](inputs, training=training)


def test_layers_of_keras_and_nested_ones_can_be_left_out_too():
    drawing = [
        keras.layers.Dropout(0.5),
        keras.layers.SpatialDropout1D(0.5),
        keras.layers.GaussianDropout(0.5),
        keras.layers.AlphaDropout(0.5),
        keras.layers.GaussianNoise(0.5),
        CountedDropout(0.5, seed=1),
        Block(keras.layers.Dropout(0.5)),
        Block(Block(keras.layers.Dropout(0.5))),
    ]
    network = keras.Sequential([keras.Input((4, 5)), keras.Sequential(drawing)])
    x = np.ones((3, 4, 5), np.float32)
    with without_dropout(network):
        np.testing.assert_array_equal(network(x, training=True), x)
    for layer in drawing:
        assert (layer(x, training=True).numpy() != x).any(), layer.name


def test_dropout_of_attention_can_be_left_out_too():
    tokens = keras.Input((4, 5))
    attention = keras.layers.MultiHeadAttention(2, 3, dropout=0.5)
    network = keras.Model(tokens, attention(tokens, tokens))
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    with without_dropout(network):
        np.testing.assert_array_equal(network(x, training=True), network(x))
    assert (network(x, training=True).numpy() != network(x).numpy()).any()


@pytest.mark.parametrize(("kind", "place"), [("LSTM", "dropout"), ("GRU", "recurrent_dropout")])
def test_dropout_of_recurrent_cells_can_be_left_out_too(kind, place):
    layer = getattr(keras.layers, kind)(6, **{place: 0.5})
    network = keras.Sequential([keras.Input((4, 5)), layer])
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    with without_dropout(network):
        np.testing.assert_allclose(network(x, training=True), network(x), atol=1e-6)
    assert (network(x, training=True).numpy() != network(x).numpy()).any()
