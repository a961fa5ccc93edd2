"""A vision transformer in two: both parts together are the whole, and a file gives the top back."""

import functools

import keras
import numpy as np
import pytest

import nccl_tf

keras_hub = pytest.importorskip("keras_hub", reason="the extra hub")

IMAGES = np.random.default_rng(0).standard_normal((3, 28, 28, 3)).astype(np.float32)


KINDS = {"vit": 3, "deit": 2, "dinov2": 2}
"""Blocks: in three, a cut has several below it or above."""


@functools.cache
def backbone(kind):
    """The same one for all tests: what is cut from it has variables of its own."""
    count = KINDS[kind]
    keras.utils.set_random_seed(0)
    models = keras_hub.models
    made = {
        "vit": lambda: models.ViTBackbone((28, 28, 3), 14, count, 2, 16, 32),
        "deit": lambda: models.DeiTBackbone((28, 28, 3), 14, count, 2, 16, 32),
        "dinov2": lambda: models.DINOV2Backbone(
            14, count, 16, 2, 32, image_shape=(28, 28, 3), position_embedding_shape=(28, 28, 3)
        ),
    }[kind]()
    rng = np.random.default_rng(1)
    made.set_weights([rng.normal(0.0, 0.3, w.shape) for w in made.get_weights()])
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_bottom_and_top_are_the_whole(kind):
    whole = backbone(kind)
    expected = np.asarray(whole(IMAGES))
    for block in range(KINDS[kind]):
        bottom, top = nccl_tf.cut(whole, block)
        tokens = bottom(IMAGES)
        np.testing.assert_allclose(top(tokens), expected, rtol=1e-5, atol=1e-5)
    assert not {id(v) for v in top.variables} & {id(v) for v in whole.variables}


@pytest.mark.eager
@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_on_the_top_comes_back_from_a_file(kind, tmp_path):
    bottom, top = nccl_tf.cut(backbone(kind), KINDS[kind] - 1)
    for layer in top._flatten_layers(include_self=False):
        layer.trainable = False
        if layer.name in ("query", "value"):
            layer.trainable = True
            layer.enable_lora(2)
    tokens = np.asarray(bottom(IMAGES))
    network = keras.Model(top.input, keras.layers.Dense(2)(top.output[:, 0]))
    learner = nccl_tf.Finetune(network)
    learner.compile(keras.optimizers.Adam(0.1))
    learner.fit(tokens, np.array([0, 1, 0]), batch_size=3, verbose=0)
    before = learner.predict(tokens, verbose=0)
    learner.save(tmp_path / "top.keras")
    loaded = nccl_tf.load_model(tmp_path / "top.keras")
    np.testing.assert_array_equal(loaded.predict(tokens, verbose=0), before)


@pytest.mark.parametrize("block", [-1, 3, True, 1.0, "1"])
def test_a_block_that_is_not_there_is_refused(block):
    with pytest.raises(nccl_tf.UserError, match="from 0 to 2"):
        nccl_tf.cut(backbone("vit"), block)


def test_another_network_is_refused():
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    with pytest.raises(nccl_tf.UserError, match="ViTBackbone"):
        nccl_tf.cut(network, 0)
