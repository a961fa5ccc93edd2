"""Optimizers of Keras with `use_ema`, whose averages `fit` leaves as weights."""

import contextlib

import keras
import numpy as np
import pytest

import nccl_tf

X, Y = np.eye(2, dtype=np.float32), np.array([0, 1])


def network():
    layers = [keras.layers.Dense(2, use_bias=False), keras.layers.Dense(2)]
    made = keras.Sequential([keras.Input((2,)), *layers])
    made.layers[0].set_weights([np.eye(2)])
    return made


@pytest.mark.eager
def test_a_method_without_steps_keeps_its_weights():
    learner = nccl_tf.NCM(network())
    learner.compile(keras.optimizers.SGD(0.1, use_ema=True))
    before = learner.network.get_weights()
    for _ in range(2):
        learner.fit(X, Y, verbose=0)
        for old, new in zip(before, learner.network.get_weights(), strict=True):
            np.testing.assert_array_equal(new, old)
    assert learner.accuracy(X, Y) == 1


@pytest.mark.eager
@pytest.mark.parametrize("scaled", [False, True])
def test_a_fit_of_skipped_steps_keeps_them_too(scaled):
    optimizer = keras.optimizers.SGD(0.1, use_ema=True)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    learner = nccl_tf.Finetune(network())
    learner.compile(optimizer)
    before = learner.network.get_weights()
    with contextlib.suppress(nccl_tf.LearningFailedError):  # since every step was skipped
        learner.fit(np.full_like(X, np.nan), Y, verbose=0)
    for old, new in zip(before, learner.network.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.eager
def test_the_first_step_is_that_of_keras():
    ends = []
    for learner in (nccl_tf.Finetune(network()), network()):
        keras.utils.set_random_seed(0)
        inner = getattr(learner, "network", learner)
        inner.layers[1].set_weights([np.eye(2), np.zeros(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.75)
        learner.compile(optimizer, loss, run_eagerly=True)
        learner.fit(X, Y, batch_size=1, epochs=2, shuffle=False, verbose=0)
        ends.append(inner.get_weights())
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.eager
def test_averages_of_new_classes_begin_at_their_weights():
    learner = nccl_tf.Finetune(network())
    learner.compile(keras.optimizers.SGD(0.0, use_ema=True))
    learner.fit(X, Y, verbose=0)
    learner.add_classes(1)
    before = learner.network.get_weights()
    learner.fit(X, np.array([2, 2]), verbose=0)
    for old, new in zip(before, learner.network.get_weights(), strict=True):
        np.testing.assert_allclose(new, old, atol=1e-6)
