"""BGD: its update against NumPy, and what the standard deviations do."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.methods.bgd import BGD, next_sigma
from tests.methods.hand import ALPHA, STREAM, WEIGHTS, gradient, network, one_step, stream
from tests.tiny import tiny_network

SIGMA, SAMPLES = 0.25, 3  # exact in float32, in which Keras makes constants


def learner(of=network, samples=SAMPLES, sigma=SIGMA):
    return BGD(of(), bgd_samples=samples, bgd_sigma=sigma, seed=3)


def drawn(model):
    """The noise of the first step, which then draws the same again."""
    noise = [model.noise()[0].numpy() for _ in range(model.bgd_samples)]
    model.draws.assign(0)
    return noise


def check_a_step():
    model = learner()
    noise = drawn(model)
    # The loss is summed over the two examples of the batch.
    g = [2 * gradient(*STREAM, WEIGHTS + SIGMA * e) for e in noise]
    correlation = np.mean([gi * e for gi, e in zip(g, noise, strict=True)], axis=0)
    after = one_step(model)
    np.testing.assert_allclose(after, WEIGHTS - ALPHA * SIGMA**2 * np.mean(g, axis=0), rtol=1e-12)
    sigma = SIGMA * np.sqrt(1 + (SIGMA * correlation / 2) ** 2) - SIGMA**2 * correlation / 2
    np.testing.assert_allclose(model.sigmas[0].numpy(), sigma, rtol=1e-12)


def test_a_step_by_hand():
    check_a_step()


@given(st.floats(1e-6, 1.0), st.floats(-1e6, 1e6))
@settings(max_examples=25, deadline=None)
def test_sigma_shrinks_where_the_loss_curves_upward(sigma, correlation):
    after = float(next_sigma(tf.constant(sigma, tf.float64), tf.constant(correlation, tf.float64)))
    assert after > 0
    assert (after <= sigma) if correlation >= 0 else (after >= sigma)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sigma_stays_above_0_where_it_would_round_to_0(dtype):
    assert float(next_sigma(tf.constant(0.06, dtype), tf.constant(1e6, dtype))) > 0


def test_the_noise_is_standard_normal_and_every_draw_is_another():
    model = BGD(tiny_network(), seed=3)
    draws = [np.concatenate([part.numpy().ravel() for part in model.noise()]) for _ in range(20)]
    assert len({draw.tobytes() for draw in draws}) == 20
    drawn_numbers = np.concatenate(draws)
    assert abs(drawn_numbers.mean()) < 0.06 and abs(drawn_numbers.std() - 1) < 0.05
    assert (BGD(tiny_network(), seed=4).noise()[0].numpy() != model.noise()[0].numpy()).any()


def test_batch_norm_moves_once_with_the_mean_weights():
    normed = keras.Sequential(
        [
            keras.Input((2, 2, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(4, use_bias=False),
            keras.layers.BatchNormalization(momentum=0.5, center=False, scale=False),
            keras.layers.Dense(3),
        ]
    )
    hidden = STREAM[0].reshape(2, 4) @ normed.layers[1].get_weights()[0]
    one_step(learner(lambda: normed, samples=2))
    mean = normed.layers[2].moving_mean.numpy()
    np.testing.assert_allclose(mean, hidden.mean(axis=0) / 2, rtol=1e-4, atol=1e-6)


def test_a_skipped_step_leaves_sigma():
    model = learner()
    model.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    bad = stream().map(lambda images, labels: (images * np.inf, labels))
    model.begin_task(0)  # a fit that began it would fail, where it learns nothing
    model.fit(bad, verbose=0)
    assert int(model.progress.skipped.numpy()) == 1
    np.testing.assert_array_equal(model.sigmas[0].numpy(), np.full(WEIGHTS.shape, SIGMA))
