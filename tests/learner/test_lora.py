"""Adapters (LoRA): learned, and not saved as what would go on otherwise."""

import copy

import keras
import numpy as np
import pytest

import nccl_tf

X, Y = np.random.default_rng(0).normal(size=(16, 6)).astype("float32"), np.arange(16) % 4


def learner(last: bool = False) -> nccl_tf.EWC:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dense(4)]
    network = keras.Sequential([keras.Input((6,)), keras.Sequential(layers[:1]), layers[1]])
    layers[last].enable_lora(2)
    made = nccl_tf.EWC(network)
    made.compile(keras.optimizers.Adam(0.05))
    return made


@pytest.mark.parametrize(
    "save",
    [
        lambda made, folder: made.save(folder / "learner.keras"),
        lambda made, folder: copy.deepcopy(made),
    ],
    ids=["save", "deepcopy"],
)
def test_a_learner_with_adapters_is_not_saved(tmp_path, save):
    made = learner()
    with pytest.raises(nccl_tf.UserError, match="LoRA"):
        save(made, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_adapters_are_learned_and_the_network_is_saved_with_them(tmp_path):
    made = learner()
    before = [weight.numpy() for weight in made.trainable_variables]
    assert any("lora" in weight.path for weight in made.trainable_variables)
    made.fit(X, Y, batch_size=4, verbose=0)
    changed = [
        (a != w.numpy()).any() for a, w in zip(before, made.trainable_variables, strict=True)
    ]
    assert all(changed)
    made.network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    np.testing.assert_allclose(loaded(X), made.network(X), atol=1e-5)


def test_a_head_with_adapters_does_not_grow():
    made = learner(last=True)
    weights = made.get_weights()
    with pytest.raises(nccl_tf.UserError, match="LoRA"):
        made.add_classes(1)
    assert made.num_classes == 4 and len(made.get_weights()) == len(weights)
