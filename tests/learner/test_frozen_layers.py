"""Layers that are frozen or freed between tasks: what is kept for a weight stays that weight's."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner.copies import WeightCopy

INPUTS = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
LABELS = np.arange(40) % 2


def network(batch_norm=False) -> keras.Sequential:
    """Two hidden layers of one shape, which nothing but their identity tells apart."""
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(8, "relu"),
            *([keras.layers.BatchNormalization()] if batch_norm else []),
            keras.layers.Dense(8, "relu"),
            keras.layers.Dense(4),
        ]
    )


def fitted(cls, *arguments, **options):
    model = cls(network(), *arguments, **options)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    model.fit(INPUTS, LABELS, verbose=0)
    return model


def test_what_is_kept_for_each_weight_asks_for_the_same_weights():
    cls = nccl_tf.EWC
    model = fitted(cls)
    model.network.layers[0].trainable = False
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    with pytest.raises(UserError, match=f"since the {cls.__name__} was made"):
        model.fit(INPUTS, LABELS, verbose=0)
    model.network.layers[0].trainable = True
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    model.fit(INPUTS, LABELS, verbose=0)


def test_another_method_goes_on_after_compile():
    model = fitted(nccl_tf.ExperienceReplay, nccl_tf.ReservoirMemory(8))
    kept = model.network.layers[0].kernel.numpy()
    model.network.layers[0].trainable = False
    for verb in (model.fit, model.train_on_batch):
        with pytest.raises(UserError, match="call compile again"):
            verb(INPUTS, LABELS)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    model.fit(INPUTS, LABELS, verbose=0)
    np.testing.assert_array_equal(model.network.layers[0].kernel.numpy(), kept)


def test_a_copy_of_the_network_predicts_the_same_after_a_layer_is_frozen():
    learner = nccl_tf.Finetune(network(batch_norm=True))
    copy = WeightCopy(learner.network, learner.state, "copy")
    copy.take()
    before = copy.outputs(INPUTS).numpy()
    learner.network.layers[2].trainable = False
    np.testing.assert_array_equal(copy.outputs(INPUTS), before)
    copy.take()
    learner.network.layers[2].trainable = True
    np.testing.assert_array_equal(copy.outputs(INPUTS), before)


def test_a_network_that_is_frozen_whole_is_refused():
    frozen = network()
    frozen.trainable = False
    model = nccl_tf.NCCL(frozen, nccl_tf.ReservoirMemory(8))
    model.compile(keras.optimizers.SGD(0.1))
    with pytest.raises(UserError, match="without trainable weights"):
        model.fit(INPUTS, LABELS, verbose=0)
