"""MEGA-I and MEGA-II: steps against NumPy, the angle that is maximised, and limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nccl_tf import MEGAI, MEGAII, ReservoirMemory
from nccl_tf.gradients import Products
from nccl_tf.methods.mega import balance, not_negative, rotation
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


def mega_i(images=MEMORY[0], labels=MEMORY[1], **kwargs):
    memory = FixedMemory(images, labels)
    return MEGAI(network(), memory, memory_batch_size=len(labels), **kwargs)


def balanced(stream_loss, memory_loss) -> tuple[float, float]:
    """Of g_J and of f_I."""
    pair = (tf.constant(value, tf.float64) for value in (stream_loss, memory_loss))
    return tuple(float(weight) for weight in balance(*pair, EPSILON))


def test_a_step_of_mega_i_by_hand():
    expected = WEIGHTS - ALPHA * (G + loss(*MEMORY) / loss(*STREAM) * F)
    almost_fitted = mega_i(mega_epsilon=0.99 * loss(*STREAM))
    np.testing.assert_allclose(one_step(almost_fitted), expected, rtol=1e-12)


def test_a_fitted_stream_batch_is_replay_alone():
    fitted = mega_i(mega_epsilon=1.01 * loss(*STREAM))
    np.testing.assert_allclose(one_step(fitted), WEIGHTS - ALPHA * F, rtol=1e-12)


@given(losses)
def test_limits_of_the_balance(value):
    assert balanced(value, value) == (1.0, 1.0)  # experience replay, the sum of both means
    assert balanced(value, 0.0) == (1.0, 0.0)  # plain SGD
    assert balanced(0.0, value) == balanced(EPSILON, value) == (0.0, 1.0)  # replay alone
    assert balanced(0.0, 0.0) == (1.0, 0.0)


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
    assert int(model.progress.skipped.numpy()) == 3  # all but the first step, which replays nothing


def test_gamma_of_a_step_that_is_not_projected_is_raw():
    model = mega_i(STREAM[0], np.array([2, 0]))
    model.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    logs = {name: value[0] for name, value in model.fit(stream(), verbose=0).history.items()}
    assert logs["interference"] == 1 and logs["gamma_surrogate"] == logs["gamma_raw"]
    ratio = loss(STREAM[0], np.array([2, 0])) / loss(*STREAM)
    np.testing.assert_allclose([logs["alpha_h"], logs["beta_h"]], [ALPHA * ratio, ALPHA], rtol=1e-6)


seeds = st.integers(0, 10**6)
moderate_losses = st.floats(0.01, 10)


def vectors(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=5) * rng.uniform(0.1, 3), rng.normal(size=5)


def rotated(f, g, stream_loss, memory_loss) -> tuple[float, float]:
    """Of g_J and of f_I."""
    constants = (tf.constant(float(value), tf.float64) for value in (f @ g, f @ f, g @ g))
    pair = (tf.constant(value, tf.float64) for value in (stream_loss, memory_loss))
    return tuple(float(weight) for weight in rotation(Products(*constants), *pair))


def mix(f, g, stream_loss, memory_loss) -> np.ndarray:
    stream_weight, memory_weight = rotated(f, g, stream_loss, memory_loss)
    return stream_weight * g + memory_weight * f


def unit(vector) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def angles(f, g, stream_loss, memory_loss) -> tuple[float, float]:
    """theta between f and g, and beta = pi/2 - arctan((l_t/l_ref + cos theta)/sin theta)."""
    theta = np.arccos(unit(f) @ unit(g))
    cotangent = (stream_loss / memory_loss + np.cos(theta)) / np.sin(theta)
    return theta, np.pi / 2 - np.arctan(cotangent)


def by_angles(f, g, stream_loss, memory_loss) -> np.ndarray:
    """The authors' system: a g + b f with <., g> = |g|^2 cos(beta), <., f> by theta - beta."""
    theta, beta = angles(f, g, stream_loss, memory_loss)
    norms = np.linalg.norm(g), np.linalg.norm(f)
    matrix = [[g @ g, f @ g], [f @ g, f @ f]]
    right = [norms[0] ** 2 * np.cos(beta), norms[0] * norms[1] * np.cos(theta - beta)]
    a, b = np.linalg.solve(matrix, right)
    return a * g + b * f


def mega_ii(images=MEMORY[0], labels=MEMORY[1]):
    memory = FixedMemory(images, labels)
    return MEGAII(network(), memory, memory_batch_size=len(labels))


def test_a_step_of_mega_ii_by_hand():
    mixed = by_angles(F.ravel(), G.ravel(), loss(*STREAM), loss(*MEMORY)).reshape(G.shape)
    np.testing.assert_allclose(one_step(mega_ii()), WEIGHTS - ALPHA * mixed, rtol=1e-10)


@settings(max_examples=25, deadline=None)
@given(seeds, moderate_losses, moderate_losses)
def test_it_is_the_angle_of_the_greatest_weighted_cosine(seed, stream_loss, memory_loss):
    f, g = vectors(seed)
    found = mix(f, g, stream_loss, memory_loss)
    np.testing.assert_allclose(found, by_angles(f, g, stream_loss, memory_loss), atol=1e-8)
    assert np.isclose(found @ found, g @ g)
    theta, beta = angles(f, g, stream_loss, memory_loss)
    scan = np.linspace(0, np.pi, 1001)
    value = stream_loss * np.cos(scan) + memory_loss * np.cos(theta - scan)
    best = stream_loss * np.cos(beta) + memory_loss * np.cos(theta - beta)
    assert best >= value.max() - 1e-12
    assert 0 <= beta <= theta


@settings(max_examples=25, deadline=None)
@given(seeds, moderate_losses)
def test_limits_of_the_rotation(seed, value):
    f, g = vectors(seed)
    assume(abs(unit(f) @ unit(g)) < 0.99)
    length = np.linalg.norm(g)
    np.testing.assert_allclose(mix(f, g, value, 0.0), g, atol=1e-12)
    np.testing.assert_allclose(mix(f, g, 0.0, value), length * unit(f), atol=1e-12)
    bisector = length * unit(unit(f) + unit(g))
    np.testing.assert_allclose(mix(f, g, value, value), bisector, atol=1e-12)
    np.testing.assert_allclose(mix(2 * g, g, value, 1.0), g, atol=1e-12)
    # Opposite gradients: the direction of the greater loss.
    np.testing.assert_allclose(mix(-g, g, value, 2 * value), -g, atol=1e-12)


def test_where_nothing_has_a_direction_it_is_the_stream_gradient():
    f, g = vectors(0)
    opposite = (-g, g, 0.7, 0.7)
    for case in (opposite, (0 * f, g, 1.0, 1.0), (f, 0 * g, 1.0, 1.0), (f, g, 0.0, 0.0)):
        assert rotated(*case) == (1.0, 0.0)
