"""Adapters of layers by name: what learns, and what is refused."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.networks import enable_lora


def network():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,))
    inner = keras.Sequential(
        [keras.layers.Dense(4, name="query"), keras.layers.Dense(4, name="key")]
    )
    return keras.Model(inputs, keras.layers.Dense(2, name="value")(inner(inputs)))


def test_only_the_named_layers_learn_and_outputs_stay():
    made, rows = network(), np.eye(3, dtype=np.float32)
    before = made.predict(rows, verbose=0)
    enable_lora(made, 2)
    np.testing.assert_array_equal(made.predict(rows, verbose=0), before)
    learns = {tuple(v.path.split("/")[-2:]) for v in made.trainable_variables}
    weights = ("bias", "lora_kernel_a", "lora_kernel_b")
    assert learns == {(layer, weight) for layer in ("query", "value") for weight in weights}
    assert made.get_layer("value").lora_kernel_b.shape == (2, 2)


def test_names_that_are_none_and_ranks_below_one_are_refused():
    with pytest.raises(nccl_tf.UserError, match=r"names=\('vlaue',\).* key, query, value"):
        enable_lora(network(), names=["vlaue"])
    with pytest.raises(nccl_tf.UserError, match="rank"):
        enable_lora(network(), rank=0)


def test_adapters_of_a_layer_that_has_some_are_refused_and_nothing_is_frozen():
    made = network()
    made.get_layer("value").enable_lora(1)
    learns = [v.path for v in made.trainable_variables]
    with pytest.raises(nccl_tf.UserError, match=r"value have adapters.* once"):
        enable_lora(made)
    assert [v.path for v in made.trainable_variables] == learns
    enable_lora(made, names=["query"])
    with pytest.raises(nccl_tf.UserError, match="query have adapters"):
        enable_lora(made, names=["query"])
