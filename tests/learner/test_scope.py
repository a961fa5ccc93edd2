"""A learner that was built outside of a strategy's scope is refused within it, in one sentence."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError

X, Y = np.ones((8, 3), "float32"), np.arange(8) % 2


def learner():
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    made = nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(8), known_classes=[0, 1])
    made.compile("sgd", run_eagerly=True)
    return made


VERBS = {
    "fit": lambda model: model.fit(X, Y, verbose=0),
    "evaluate": lambda model: model.evaluate(X, Y, verbose=0),
    "predict": lambda model: model.predict(X, verbose=0),
    "train_on_batch": lambda model: model.train_on_batch(X, Y),
    "remember": lambda model: model.remember(X, Y),
    "compile": lambda model: model.compile("sgd"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_learner_from_outside_is_refused(verb):
    model, strategy = learner(), tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope(), pytest.raises(UserError, match="outside of the scope of this OneDevice"):
        VERBS[verb](model)
    VERBS[verb](model)


def test_one_from_another_strategy_is_refused():
    one, other = (tf.distribute.OneDeviceStrategy("CPU:0") for _ in range(2))
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with one.scope():
        model = nccl_tf.Finetune(network)
        model.compile("sgd")
    with other.scope(), pytest.raises(UserError, match="outside of the scope"):
        model.fit(X, Y, verbose=0)
