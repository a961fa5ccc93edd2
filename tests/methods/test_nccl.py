"""NCCL's choices beside the algorithm: step sizes for each variable, and who passes last."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.diagnostics.callback import ForgettingDiagnostics
from nccl_tf.errors import UserError
from nccl_tf.methods.nccl import NCCL
from nccl_tf.streams import load_stream
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, FixedMemory, network, stream

SMOOTHNESS, DELTA = 2.0, 0.05


def dense_network() -> keras.Model:
    """Two dense layers in float64, with five variables of which each has its own Lambda."""
    random = np.random.default_rng(12)
    model = keras.Sequential([
        keras.Input((2, 2, 1), dtype="float64"),
        keras.layers.Flatten(dtype="float64"),
        keras.layers.Dense(6, "tanh", dtype="float64"),
        keras.layers.Dense(5, "tanh", use_bias=False, dtype="float64"),
        keras.layers.Dense(3, dtype="float64"),
    ])  # fmt: skip
    model.set_weights([random.normal(size=w.shape) for w in model.get_weights()])
    return model


def gradients(model, images, labels) -> list[np.ndarray]:
    with tf.GradientTape() as tape:
        losses = keras.losses.sparse_categorical_crossentropy(labels, model(images), True)
        mean = tf.reduce_mean(losses)
    return [g.numpy() for g in tape.gradient(mean, model.trainable_variables)]


def stepped(weight, f, g):
    """One variable by NCCL's rule (section 5.2), and whether it interferes."""
    product = np.sum(f * g)
    if product <= 0:
        return weight - ALPHA * (1 - product / np.sum(f * f)) * f - ALPHA * g, True
    beta = (1 - ALPHA * SMOOTHNESS) * product / (SMOOTHNESS * np.sum(g * g))
    return weight - ALPHA * f - min(beta, ALPHA * (1 - DELTA)) * g, False


@pytest.mark.parametrize("path", ["auto", "two_tapes"])
def test_each_variable_takes_its_own_step_by_hand(path):
    model = dense_network()
    weights = model.get_weights()
    both = zip(weights, gradients(model, *MEMORY), gradients(model, *STREAM), strict=True)
    expected, interferes = zip(*(stepped(*each) for each in both), strict=True)
    assert {True, False} == set(interferes)
    learner = NCCL(
        model, FixedMemory(*MEMORY), memory_batch_size=3, smoothness=SMOOTHNESS, delta=DELTA,
        gradients=path, grad_scope="layer",
    )  # fmt: skip
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    logs = learner.fit(stream(), verbose=0).history
    for after, weight in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(after, weight, rtol=1e-12, atol=1e-14)
    assert logs["interference"] == [pytest.approx(np.mean(interferes))]


@pytest.mark.parametrize("order", ["memory_first", "memory_last"])
def test_who_passes_batch_norm_last_moves_the_averages_last(order):
    norm = keras.layers.BatchNormalization(momentum=0.5, center=False, scale=False, dtype="float64")
    layers = [keras.Input((2, 2, 1), dtype="float64"), norm, keras.layers.Flatten(dtype="float64")]
    dense = keras.layers.Dense(3, use_bias=False, dtype="float64")
    learner = NCCL(
        keras.Sequential([*layers, dense]), FixedMemory(*MEMORY), memory_batch_size=3,
        batch_norm_order=order,
    )  # fmt: skip
    dense.set_weights([WEIGHTS])
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    learner.fit(stream(), verbose=0)
    means = [MEMORY[0].mean(), STREAM[0].mean()]
    first, last = means if order == "memory_first" else means[::-1]
    np.testing.assert_allclose(norm.moving_mean, [first / 4 + last / 2], rtol=1e-12)


def test_what_has_no_effect_or_no_meaning_is_refused():
    memory = FixedMemory(*MEMORY)
    with pytest.raises(UserError, match="batch_norm_order"):
        NCCL(network(), memory, batch_norm="joint", batch_norm_order="memory_last").compile()
    with pytest.raises(UserError, match="grad_scope"):
        NCCL(network(), memory, grad_scope="kernel")
    learner = NCCL(network(), memory, grad_scope="layer")
    diagnostics = ForgettingDiagnostics(list(load_stream("permuted_digits", max_tasks=2)))
    with pytest.raises(UserError, match="one alpha_H and one beta_H"):
        diagnostics.set_model(learner)
