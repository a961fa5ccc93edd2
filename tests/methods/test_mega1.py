"""MEGA-I: a step against NumPy, and its limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nccl_tf import MEGAI, ReservoirMemory, UserError
from nccl_tf.methods.mega1 import balance, not_negative
from tests.methods.hand import (
    ALPHA,
    MEMORY,
    STREAM,
    WEIGHTS,
    FixedMemory,
    gradient,
    loss,
    network,
    one_step,
    stream,
)

EPSILON = 1e-5
F, G = gradient(*MEMORY), gradient(*STREAM)
losses = st.floats(1e-3, 1e3)


def learner(images=MEMORY[0], labels=MEMORY[1], **kwargs):
    memory = FixedMemory(images, labels)
    return MEGAI(network(), memory, memory_batch_size=len(labels), **kwargs)


def weights_of(stream_loss, memory_loss) -> tuple[float, float]:
    """Of g_J and of f_I."""
    pair = (tf.constant(value, tf.float64) for value in (stream_loss, memory_loss))
    return tuple(float(weight) for weight in balance(*pair, EPSILON))


def test_a_step_by_hand():
    expected = WEIGHTS - ALPHA * (G + loss(*MEMORY) / loss(*STREAM) * F)
    almost_fitted = learner(mega_epsilon=0.99 * loss(*STREAM))
    np.testing.assert_allclose(one_step(almost_fitted), expected, rtol=1e-12)


def test_a_fitted_stream_batch_is_replay_alone():
    fitted = learner(mega_epsilon=1.01 * loss(*STREAM))
    np.testing.assert_allclose(one_step(fitted), WEIGHTS - ALPHA * F, rtol=1e-12)


def test_an_empty_memory_is_sgd():
    model = learner(mega_epsilon=100.0)
    rows = model.memory.rows
    model.memory.rows = rows._replace(weights=0 * rows.weights)
    np.testing.assert_allclose(one_step(model), WEIGHTS - ALPHA * G, rtol=1e-12)


@given(losses, losses, st.floats(0.1, 10))
def test_the_balance_is_of_the_losses_alone(stream_loss, memory_loss, scale):
    stream_weight, memory_weight = weights_of(stream_loss, memory_loss)
    assert stream_weight == 1.0
    assert memory_weight * stream_loss == pytest.approx(memory_loss)
    assert weights_of(scale * stream_loss, scale * memory_loss) == pytest.approx(
        (stream_weight, memory_weight)
    )


@given(losses)
def test_its_limits(value):
    assert weights_of(value, value) == (1.0, 1.0)  # experience replay, the sum of both means
    assert weights_of(value, 0.0) == (1.0, 0.0)  # plain SGD
    assert weights_of(0.0, value) == weights_of(EPSILON, value) == (0.0, 1.0)  # replay alone
    assert weights_of(0.0, 0.0) == (1.0, 0.0)


@pytest.mark.parametrize("name", ["loss", "memory_loss"])
def test_losses_below_0_have_no_balance(name):
    given_losses = {"loss": tf.constant(1.0), "memory_loss": tf.constant(1.0)}
    given_losses[name] = tf.constant(-1.0)
    assert np.isnan(sum(balance(*not_negative(given_losses), EPSILON)))


def test_steps_with_a_loss_below_0_are_skipped():
    model = MEGAI(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), ReservoirMemory(8))
    model.compile(
        keras.optimizers.SGD(0.1), loss=lambda targets, outputs: -(outputs**2), run_eagerly=True
    )
    table = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    model.fit(table, table[:, :2], batch_size=5, verbose=0)
    assert int(model.skipped.numpy()) == 3  # all but the first step, which replays nothing


def test_gamma_of_a_step_that_is_not_projected_is_raw():
    model = learner(STREAM[0], np.array([2, 0]))
    model.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    logs = {name: value[0] for name, value in model.fit(stream(), verbose=0).history.items()}
    assert logs["interference"] == 1 and logs["gamma_surrogate"] == logs["gamma_raw"]
    ratio = loss(STREAM[0], np.array([2, 0])) / loss(*STREAM)
    np.testing.assert_allclose([logs["alpha_h"], logs["beta_h"]], [ALPHA * ratio, ALPHA], rtol=1e-6)


def test_a_bad_epsilon_is_refused():
    with pytest.raises(UserError, match="mega_epsilon"):
        learner(mega_epsilon=0.0)
