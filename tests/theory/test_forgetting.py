"""Gamma in its two forms, on quadratics where the descent inequality is an equality."""

import math

import numpy as np
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nccl_tf import step_sizes
from nccl_tf.theory.forgetting import gamma, gamma_surrogate, optimal_gamma

problems = st.tuples(st.integers(0, 10**6), st.floats(0.001, 0.9), st.floats(0.1, 1.0))


def double(value):
    return tf.constant(float(value), tf.float64)


@settings(max_examples=25, deadline=None)
@given(problems)
def test_raw_gamma_closes_the_descent_equality_of_a_quadratic(problem):
    """f(x) = L/2 |x - a|^2: f(x+) = f(x) - (alpha_H - L alpha_H^2/2)|F|^2 + Gamma, e_t = 0."""
    seed, alpha, smoothness = problem
    rng = np.random.default_rng(seed)
    x, a, g = rng.normal(size=(3, 5))
    f = smoothness * (x - a)
    sizes = step_sizes.nccl(
        double(f @ g), double(f @ f), double(g @ g), double(alpha), double(smoothness), 1e-3
    )
    alpha_h, beta_h = float(sizes.alpha_h), float(sizes.beta_h)

    def loss(point):
        return 0.5 * smoothness * np.sum((point - a) ** 2)

    after = loss(x - alpha_h * f - beta_h * g)
    term = float(
        gamma(sizes.alpha_h, sizes.beta_h, double(f @ g), double(g @ g), double(smoothness))
    )
    expected = loss(x) - (alpha_h - 0.5 * smoothness * alpha_h**2) * (f @ f) + term
    assert math.isclose(after, expected, rel_tol=1e-9, abs_tol=1e-9)


@settings(max_examples=25, deadline=None)
@given(problems)
def test_raw_and_surrogate_book_the_same_total_in_interference(problem):
    seed, alpha, smoothness = problem
    f, g = np.random.default_rng(seed).normal(size=(2, 6))
    assume(f @ g < 0)
    scalars = double(f @ g), double(f @ f), double(g @ g)
    sizes = step_sizes.nccl(*scalars, double(alpha), double(smoothness), 1e-3)
    alpha_h = float(sizes.alpha_h)
    raw = float(gamma(sizes.alpha_h, sizes.beta_h, scalars[0], scalars[2], double(smoothness)))
    surrogate = float(gamma_surrogate(double(alpha), *scalars, double(smoothness)))
    left = -(alpha_h - 0.5 * smoothness * alpha_h**2) * (f @ f) + raw
    right = -(alpha - 0.5 * smoothness * alpha**2) * (f @ f) + surrogate
    assert math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    assert surrogate >= -1e-12


def test_in_transfer_gamma_is_negative_up_to_the_optimum():
    lambda_, stream, alpha, smoothness = map(double, (0.3, 2.0, 0.1, 1.0))
    best = step_sizes.optimal_beta(lambda_, stream, alpha, smoothness)
    values = [float(gamma(alpha, best * s, lambda_, stream, smoothness)) for s in (0.25, 0.5, 1)]
    assert values == sorted(values, reverse=True) and values[0] < 0


@settings(max_examples=25, deadline=None)
@given(problems)
def test_the_optimal_gamma_is_reached_at_beta_star(problem):
    """It is the least on a grid."""
    seed, alpha, smoothness = problem
    f, g = np.random.default_rng(seed).normal(size=(2, 6))
    lambda_, stream = double(f @ g), double(g @ g)
    alpha, smoothness = double(alpha), double(smoothness)
    best = step_sizes.optimal_beta(lambda_, stream, alpha, smoothness)
    least = float(optimal_gamma(lambda_, stream, alpha, smoothness))
    at_best = float(gamma(alpha, best, lambda_, stream, smoothness))
    assert math.isclose(least, at_best, rel_tol=1e-9, abs_tol=1e-12)
    others = tf.constant(np.linspace(-2, 2, 41) * max(1.0, abs(float(best))))
    assert least <= np.min(gamma(alpha, others, lambda_, stream, smoothness)) + 1e-9
    printed = -float((1 - alpha * smoothness) * lambda_ / (2 * smoothness * stream))
    squared = -float((1 - alpha * smoothness) ** 2 * lambda_**2 / (2 * smoothness * stream))
    assert math.isclose(least, squared, rel_tol=1e-9, abs_tol=1e-12)
    assert printed != squared  # E1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 20))
def test_the_joint_step_is_that_of_the_mean_of_both(seed, memory, stream):
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(memory + stream, 5))
    f, g = gradients[:memory].mean(0), gradients[memory:].mean(0)
    both = memory + stream
    sizes = step_sizes.joint(
        double(f @ g), double(0.3), double(memory / both), double(stream / both)
    )
    step = float(sizes.alpha_h) * f + float(sizes.beta_h) * g
    np.testing.assert_allclose(step, 0.3 * gradients.mean(0), rtol=1e-9, atol=1e-12)
    assert bool(sizes.interference) == (f @ g <= 0)


@settings(max_examples=25, deadline=None)
@given(problems, st.floats(0.1, 50.0))
def test_gamma_is_affine_in_the_smoothness(problem, other):
    seed, alpha, smoothness = problem
    f, g = np.random.default_rng(seed).normal(size=(2, 6))
    scalars = double(alpha), double(0.7 * alpha), double(f @ g), double(g @ g)
    at_0, one, there = (float(gamma(*scalars, double(v))) for v in (0.0, smoothness, other))
    slope = (one - at_0) / smoothness
    assert math.isclose(there, at_0 + other * slope, rel_tol=1e-9, abs_tol=1e-9)
