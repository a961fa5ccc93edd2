"""Keras's optimizers by name, and their arguments at the command."""

import inspect

import keras
import pytest

from nccl_tf.arguments.optimizers import (
    DEFAULT_RATE,
    OPTIMIZERS,
    SGD,
    as_texts,
    optimizer_arguments,
)
from nccl_tf.errors import UserError


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_arguments_and_defaults_are_those_of_keras(name):
    parameters = inspect.signature(type(keras.optimizers.get(name))).parameters
    assert OPTIMIZERS[name].items() <= {n: p.default for n, p in parameters.items()}.items()
    if name != SGD:
        assert parameters["learning_rate"].default == DEFAULT_RATE


def test_arguments_are_sorted_and_defaults_left_out():
    texts = ("nesterov:true", "momentum:9e-1", "weight_decay:0")
    assert optimizer_arguments(SGD, texts) == {
        "momentum": 0.9, "nesterov": True, "weight_decay": 0.0,
    }  # fmt: skip
    assert optimizer_arguments("adam", ("beta_1:0.9", "amsgrad:false")) == {}
    again = as_texts(optimizer_arguments(SGD, texts))
    assert again == ("momentum:0.9", "nesterov:true", "weight_decay:0.0")
    assert as_texts(optimizer_arguments(SGD, again)) == again


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("momentun:0.9",), "momentum"),
        (("beta_1:0.9",), "one of momentum, nesterov"),
        (("momentum",), "a finite number after the colon"),
        (("momentum:true",), "a finite number"),
        (("momentum:NaN",), "a finite number"),
        (("nesterov:1",), "true or false"),
        (("momentum:0.9", "momentum:0.8"), "twice"),
    ],
)
def test_what_is_no_argument_is_refused(texts, said):
    with pytest.raises(UserError, match=said):
        optimizer_arguments(SGD, texts)
