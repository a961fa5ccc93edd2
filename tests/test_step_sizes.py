"""Identities of NCCL's and A-GEM's step sizes, in float64 on random gradients."""

import math

import numpy as np
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nccl_tf import step_sizes
from nccl_tf.theory import forgetting

DELTA = 1e-3
problems = st.tuples(st.integers(0, 10**6), st.floats(0.001, 0.9), st.floats(0.1, 1.0))


def vectors(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=7), rng.normal(size=7) * rng.uniform(0.1, 3)


def scalars(f, g):
    return (tf.constant(float(v), tf.float64) for v in (f @ g, f @ f, g @ g))


def nccl(f, g, alpha, smoothness, beta_max=None):
    alpha, smoothness = (tf.constant(v, tf.float64) for v in (alpha, smoothness))
    sizes = step_sizes.nccl(*scalars(f, g), alpha, smoothness, DELTA, beta_max)
    return float(sizes.alpha_h), float(sizes.beta_h)


@settings(max_examples=25, deadline=None)
@given(problems)
def test_interference_is_agem_plus_a_replay_step(problem):
    seed, alpha, smoothness = problem
    f, g = vectors(seed)
    assume(f @ g < 0)
    alpha_h, beta_h = nccl(f, g, alpha, smoothness)
    projected = g - (f @ g) / (f @ f) * f
    np.testing.assert_allclose(alpha_h * f + beta_h * g, alpha * (f + projected), atol=1e-12)
    agem = step_sizes.agem(*list(scalars(f, g))[:2], tf.constant(alpha, tf.float64))
    np.testing.assert_allclose(
        float(agem.alpha_h) * f + float(agem.beta_h) * g, alpha * projected, atol=1e-12
    )


@settings(max_examples=25, deadline=None)
@given(problems)
def test_every_step_descends_the_memory_loss_to_first_order(problem):
    seed, alpha, smoothness = problem
    f, g = vectors(seed)
    alpha_h, beta_h = nccl(f, g, alpha, smoothness)
    decrease = f @ (alpha_h * f + beta_h * g)
    if f @ g <= 0:
        assert math.isclose(decrease, alpha * (f @ f), rel_tol=1e-9)
    else:
        assert decrease >= alpha * (f @ f) * (1 - 1e-12)


@settings(max_examples=25, deadline=None)
@given(problems, st.floats(0.001, 5.0))
def test_transfer_is_bounded_by_theory_or_by_beta_max(problem, beta_max):
    seed, alpha, smoothness = problem
    f, g = vectors(seed)
    assume(f @ g > 1e-6)
    beta_star = (1 - alpha * smoothness) * (f @ g) / (smoothness * (g @ g))
    alpha_h, beta_h = nccl(f, g, alpha, smoothness)
    assert alpha_h == alpha
    assert math.isclose(beta_h, min(alpha * (1 - DELTA), beta_star), rel_tol=1e-9)
    _, clipped = nccl(f, g, alpha, smoothness, beta_max)
    assert math.isclose(clipped, min(beta_max, beta_star), rel_tol=1e-9)


def test_the_boundary_at_lambda_zero():
    f = np.array([1.0, 0.0])
    below, above = (nccl(f, np.array([s, 1.0]), 0.1, 1.0) for s in (-1e-13, 1e-13))
    np.testing.assert_allclose(below, (0.1, 0.1), rtol=1e-9)
    np.testing.assert_allclose(above, (0.1, 0.0), atol=1e-9)
    assert nccl(f, np.array([0.0, 1.0]), 0.1, 1.0) == (0.1, 0.1)  # 0 itself is interference


def test_where_alpha_l_exceeds_one_the_stream_gets_no_step():
    f, g = np.array([1.0, 0.0]), np.array([1.0, 1.0])
    assert nccl(f, g, 0.1, 20.0) == (0.1, 0.0)
    assert nccl(f, g, 0.1, 20.0, 0.5) == (0.1, 0.0)


@settings(max_examples=25, deadline=None)
@given(problems, st.floats(0.5, 2.0))
def test_scaling_the_loss_scales_the_step_sizes(problem, scale):
    seed, alpha, smoothness = problem
    f, g = vectors(seed)
    plain = nccl(f, g, alpha, smoothness)
    scaled = nccl(scale * f, scale * g, alpha / scale, smoothness * scale)
    np.testing.assert_allclose(np.array(scaled) * scale, plain, rtol=1e-9)


def test_vanishing_gradients_give_finite_steps():
    zero, one = np.zeros(3), np.array([1.0, 2.0, 3.0])
    assert nccl(zero, one, 0.1, 1.0) == (0.1, 0.1)
    assert all(map(math.isfinite, nccl(one, zero, 0.1, 1.0)))
    assert nccl(zero, zero, 0.1, 1.0) == (0.1, 0.1)


@settings(max_examples=25, deadline=None)
@given(problems)
def test_beta_star_minimises_gamma(problem):
    seed, alpha, smoothness = problem
    f, g = vectors(seed)
    assume(f @ g > 1e-3)
    lambda_, _, stream = scalars(f, g)
    alpha, smoothness = (tf.constant(v, tf.float64) for v in (alpha, smoothness))
    best = step_sizes.optimal_beta(lambda_, stream, alpha, smoothness)

    def gamma(beta):
        return float(forgetting.gamma(alpha, beta, lambda_, stream, smoothness))

    lowest = -((1 - alpha * smoothness) ** 2) * lambda_**2 / (2 * smoothness * stream)
    assert math.isclose(gamma(best), float(lowest), rel_tol=1e-9)
    others = best * np.linspace(0, 2, 21)
    assert (
        gamma(best) <= np.min(forgetting.gamma(alpha, others, lambda_, stream, smoothness)) + 1e-12
    )
    assert gamma(2 * best) <= 1e-9
