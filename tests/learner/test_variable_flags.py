"""Flags of variables, which Keras keeps in no configuration, outlive files and growth."""

import copy
import functools

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.session.fingerprint import fingerprint

pytestmark = pytest.mark.eager

DECAY, RATE = 0.5, 0.25


class Block(keras.layers.Layer):
    """Layers within a layer, whose configuration does not say whether they are frozen."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.norm = keras.layers.Dense(4), keras.layers.BatchNormalization()

    def build(self, shape):
        self.dense.build(shape)
        self.norm.build((*shape[:-1], 4))

    def call(self, inputs, training=False):
        return self.norm(self.dense(inputs), training=training)


def network() -> keras.Sequential:
    layers = [keras.layers.Dense(4, name="hidden"), keras.layers.Dense(3, name="head")]
    return keras.Sequential([keras.Input((5,)), *layers])


def by_names(optimizer, network):
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return [False, True, False, True]


def by_name_of_the_layer(optimizer, network):
    found = ["head" in variable.value.name for variable in network.trainable_variables]
    optimizer.exclude_from_weight_decay(var_names=["head"])
    return found


def by_variables(optimizer, network):
    optimizer.exclude_from_weight_decay(var_list=[network.layers[1].kernel])
    return [False, False, True, False]


def not_at_all(optimizer, network):
    return [False] * 4


def compiled(exclude, scaled=False):
    model = nccl_tf.Finetune(network())
    optimizer = keras.optimizers.SGD(RATE, momentum=0.5, weight_decay=DECAY)
    right = exclude(optimizer, model.network)
    outer = keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer
    model.compile(outer, run_eagerly=True)
    return model, right


def kept_by_a_step(model):
    """Of each variable, whether a step with a gradient of 0 keeps it: nothing decays it."""
    variables = model.network.trainable_variables
    for variable in variables:
        variable.assign(np.ones(variable.shape))
    for slot in model.optimizer.variables:
        if "momentum" in slot.path:
            slot.assign(np.zeros(slot.shape))
    model.optimizer.apply([np.zeros(v.shape, np.float32) for v in variables], variables)
    shares = [float(np.unique(variable.numpy()).item()) for variable in variables]
    assert set(shares) <= {1.0, 1.0 - DECAY * RATE}
    return [share == 1.0 for share in shares]


def saved_and_loaded(model, folder):
    model.save(folder / "model.keras")
    return nccl_tf.load_model(folder / "model.keras")


@pytest.mark.parametrize("exclude", [by_names, by_variables, by_name_of_the_layer, not_at_all])
def test_what_is_excluded_from_weight_decay_stays_excluded(exclude, tmp_path):
    """Through a copy, a file and a file of what the file holds, and a head that grows in each."""
    model, right = compiled(exclude)
    assert kept_by_a_step(model) == right
    for again in (copy.deepcopy, *[functools.partial(saved_and_loaded, folder=tmp_path)] * 2):
        model.add_classes(1)
        assert kept_by_a_step(model) == right
        model = again(model)
        assert kept_by_a_step(model) == right


def test_the_optimizer_within_a_loss_scale_has_the_flags(tmp_path):
    model, right = compiled(by_names, scaled=True)
    model.add_classes(1)
    assert kept_by_a_step(saved_and_loaded(model, tmp_path)) == right


def test_a_loaded_model_takes_the_step_that_would_have_come(tmp_path):
    inputs = np.random.default_rng(0).normal(size=(16, 5)).astype("float32")
    model, _ = compiled(by_names)
    model.fit(inputs, np.arange(16) % 3, verbose=0)
    loaded = saved_and_loaded(model, tmp_path)
    for one in (model, loaded):
        one.fit(inputs, np.arange(16) % 3, shuffle=False, verbose=0)
    for left, right in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_variable_is_overwritten_by_its_gradient_in_a_file_and_a_grown_head(tmp_path):
    model = nccl_tf.Finetune(network())
    model.network.layers[1].bias.overwrite_with_gradient = True
    model.compile(keras.optimizers.SGD(RATE, momentum=0.5), run_eagerly=True)
    slots = len(model.optimizer.variables)
    model.add_classes(2)
    for one in (model, saved_and_loaded(model, tmp_path)):
        assert len(one.optimizer.variables) == slots
        bias = one.network.layers[1].bias
        gradients = [np.full(v.shape, 7.0, np.float32) for v in one.trainable_variables]
        one.optimizer.apply(gradients, one.trainable_variables)
        np.testing.assert_array_equal(bias.numpy(), np.full(5, 7.0))


@pytest.mark.parametrize(
    "verb",
    [
        lambda model: model.fit(np.ones((4, 5), "float32"), np.arange(4) % 3, verbose=0),
        lambda model: model.add_classes(1),
    ],
)
def test_a_variable_that_is_marked_after_compile_asks_for_it_again(verb):
    model, _ = compiled(not_at_all)
    model.network.layers[1].bias.overwrite_with_gradient = True
    with pytest.raises(UserError, match="overwrite_with_gradient"):
        verb(model)
    assert model.num_classes == 3 and model.network.output_shape == (None, 3)


def test_layers_that_are_frozen_after_compile_let_a_head_grow():
    model, _ = compiled(not_at_all)
    model.network.layers[0].trainable = False
    model.add_classes(1)
    assert [v.shape for v in model.optimizer._trainable_variables[2:]] == [(4, 4), (4,)]


def test_what_is_frozen_within_a_layer_is_frozen_in_a_loaded_model(tmp_path):
    block = Block()
    inner = keras.Sequential([keras.Input((5,)), block, keras.layers.Dense(3, name="head")])
    block.norm.trainable = False
    block.dense.bias.trainable = False
    model = nccl_tf.Finetune(inner)
    model.compile("sgd", run_eagerly=True)
    model.save(tmp_path / "model.keras")
    loaded = nccl_tf.load_model(tmp_path / "model.keras", {"Block": Block})
    one, other = (m.network.layers[0] for m in (model, loaded))
    assert (one.norm.trainable, other.norm.trainable) == (False, False)
    assert one.dense.trainable and other.dense.trainable
    trained = [[v.path.split("/")[-1] for v in m.trainable_variables] for m in (model, loaded)]
    assert trained == [["kernel", "kernel", "bias"]] * 2


def test_what_a_class_freezes_is_free_in_a_model_that_was_loaded(tmp_path):
    class Frozen(Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense.trainable = False

    block = Frozen()
    inner = keras.Sequential([keras.Input((5,)), block, keras.layers.Dense(3)])
    block.dense.trainable = True
    model = nccl_tf.Finetune(inner)
    model.compile("sgd")
    model.save(tmp_path / "model.keras")
    loaded = nccl_tf.load_model(tmp_path / "model.keras", {"Frozen": Frozen})
    assert len(loaded.trainable_variables) == len(model.trainable_variables) == 6


def test_a_file_without_flags_is_loaded(tmp_path):
    model, _ = compiled(not_at_all)
    config = model.get_compile_config()
    config.pop("marks")
    other = nccl_tf.Finetune(network())
    other.compile_from_config(config)
    assert kept_by_a_step(other) == [False] * 4


def test_a_backup_of_a_call_with_other_flags_is_another():
    prints = []
    for exclude in (by_names, by_variables, by_names):
        model, _ = compiled(exclude)
        prints.append(fingerprint(model, [], {}))
    assert prints[0] == prints[2] != prints[1]
