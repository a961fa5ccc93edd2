"""A network that ends in probabilities is refused, wherever it hides its last activation."""

import random

import keras
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.networks.inspection import check_ends_in_logits
from tests.tiny import tiny_experts, tiny_network

layers = keras.layers


def sequential(*last):
    return keras.Sequential([keras.Input((3,)), layers.Dense(4), *last])


def functional(end):
    inputs = keras.Input((3,))
    return keras.Model(inputs, end(layers.Dense(4)(inputs)))


ENDS = {
    "softmax": [
        lambda: sequential(layers.Dense(2, "softmax")),
        lambda: sequential(layers.Dense(2), layers.Softmax()),
        lambda: sequential(layers.Activation("softmax"), layers.Activation("linear")),
        lambda: sequential(sequential_of_four("softmax"), layers.Dropout(0.5)),
        lambda: functional(keras.ops.softmax),
        lambda: functional(sequential_of_four("softmax")),
    ],
    "sigmoid": [
        lambda: sequential(layers.Dense(2, keras.activations.sigmoid)),
        lambda: functional(layers.Activation("sigmoid")),
    ],
}


def sequential_of_four(activation):
    return keras.Sequential([keras.Input((4,)), layers.Dense(2, activation)])


@pytest.mark.parametrize(("name", "make"), [(n, make) for n in ENDS for make in ENDS[n]])
def test_probabilities_are_refused(name, make):
    with pytest.raises(nccl_tf.UserError, match=f"ends in {name}, but a learner takes logits"):
        check_ends_in_logits(make())


def test_a_learner_checks_when_it_is_compiled():
    learner = nccl_tf.Finetune(sequential(layers.Softmax()))
    with pytest.raises(nccl_tf.UserError, match="leave the softmax out"):
        learner.compile("sgd")


class Subclassed(keras.Model):
    """Nothing is known of it."""

    def call(self, inputs):
        return keras.ops.softmax(inputs)


LOGITS = {
    "dense": lambda: sequential(layers.Dense(2)),
    "relu": lambda: sequential(layers.Dense(2, "relu")),
    "softmax within": lambda: sequential(layers.Softmax(), layers.Dense(2)),
    "an operation": lambda: functional(lambda x: x + 1),
    "two branches": lambda: functional(lambda x: layers.Add()([layers.Softmax()(x), x])),
    "subclassed": Subclassed,
    "ours": tiny_network,
    "experts": tiny_experts,
}


@pytest.mark.parametrize("name", LOGITS)
def test_logits_are_taken(name):
    check_ends_in_logits(LOGITS[name]())


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)


def with_outputs(structure):
    inputs = keras.Input((3,))
    return keras.Model(inputs, structure(layers.Dense(2)(inputs)))


NO_NETWORKS = {
    "whose output is a list of 2": lambda: with_outputs(lambda y: [y, y + 1]),
    "whose output is a list of 1": lambda: with_outputs(lambda y: [y]),
    "whose output is a dict of 1": lambda: with_outputs(lambda y: {"a": y}),
    "of class Subclassed, which does not know": Subclassed,
    "of class Sequential, which does not know": lambda: keras.Sequential([layers.Dense(2)]),
    "a Dense as network, expected": lambda: layers.Dense(2),
    "a str as network, expected": lambda: "mlp",
}


@pytest.mark.parametrize("reason", NO_NETWORKS)
def test_what_is_no_network_of_one_output_is_refused(reason):
    with pytest.raises(nccl_tf.UserError, match=f"^received .*{reason}"):
        nccl_tf.Finetune(NO_NETWORKS[reason]())


def test_a_wrapped_model_is_a_network():
    inputs = keras.Input((3,))
    network = keras.Model(inputs, Subclassed()(inputs))
    assert nccl_tf.Finetune(network).num_classes == 2


class Scaled(layers.Layer):
    """A layer whose configuration has what follows from its arguments."""

    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)
        self.factor, self.seeds = factor, keras.random.SeedGenerator()

    def call(self, inputs):
        return self.factor * inputs

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "factor": self.factor, "square": self.factor**2}


class Backbone(keras.Sequential):
    """A model of a class of its own, whose configuration does not name its layers."""

    def __init__(self, **kwargs):
        super().__init__([keras.Input((4,)), Scaled(2.0)], **kwargs)

    def get_config(self):
        return {"name": self.name}


@pytest.mark.parametrize(
    "within",
    [
        lambda layer: layer,
        lambda layer: keras.Sequential([keras.Input((4,)), layer]),
        lambda layer: keras.Sequential(
            [keras.Input((4,)), layers.RepeatVector(1), layers.TimeDistributed(layer)]
        ),
    ],
)
def test_a_layer_that_its_configuration_does_not_make_is_named(within):
    """Before anything is trained: its file would be written, and could not be loaded."""
    network = sequential(within(Scaled(2.0, name="twice")), layers.Flatten(), layers.Dense(2))
    with pytest.raises(UserError, match=r"layer '.*Scaled\.get_config"):
        nccl_tf.Finetune(network)


def test_layers_that_no_configuration_names_are_left_alone():
    keras.utils.set_random_seed(0)
    network = sequential(Backbone(), layers.Dense(2))
    draws = random.getstate()
    nccl_tf.Finetune(network)
    assert random.getstate() == draws


def test_a_layer_that_leaves_its_configuration_to_keras_learns_and_is_not_saved(tmp_path):
    class Own(layers.Layer):
        def __init__(self, factor):
            super().__init__(name="own")
            self.factor = factor

        def call(self, inputs):
            return self.factor * inputs

    learner = nccl_tf.Finetune(sequential(Own(2.0), layers.Dense(2)))
    with pytest.raises(UserError, match="layer 'own'"):
        learner.save(tmp_path / "learner.keras")
    assert not list(tmp_path.iterdir())
