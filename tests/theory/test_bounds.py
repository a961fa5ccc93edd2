"""The bounds on quadratics, where they hold with equality, and on random memories."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.errors import UserError
from nccl_tf.theory import (
    bounds,
    estimates,
    overfitting,
)
from nccl_tf.theory.forgetting import gamma

problems = st.tuples(st.integers(0, 10**6), st.floats(0.01, 0.9), st.floats(0.1, 2.0))


def quadratic_step(problem):
    """One step on f(x) = L/2 |x - a|^2 with a memory error e, and all its quantities."""
    seed, alpha, smoothness = problem
    rng = np.random.default_rng(seed)
    x, a, error, g = rng.normal(size=(4, 5))
    full = smoothness * (x - a)
    f = full + error
    alpha_h, beta_h = alpha * rng.uniform(0.5, 1.0), alpha * rng.uniform(0, 1.5)

    def loss(point):
        return 0.5 * smoothness * np.sum((point - a) ** 2)

    term = float(gamma(alpha_h, beta_h, f @ g, g @ g, smoothness))
    b = overfitting.overfitting(alpha_h, beta_h, full, f, g, smoothness)
    after = loss(x - alpha_h * f - beta_h * g)
    return loss(x), after, full, f, g, error, alpha_h, beta_h, smoothness, term, b


@settings(max_examples=25, deadline=None)
@given(problems)
def test_the_one_step_inequality_is_an_equality_on_a_quadratic(problem):
    before, after, full, _, _, error, alpha_h, _, smoothness, term, b = quadratic_step(problem)
    half = 0.5 * smoothness * alpha_h**2
    bound = before - (alpha_h - half) * (full @ full) + term + b + half * (error @ error)
    assert math.isclose(after, bound, rel_tol=1e-9, abs_tol=1e-9)


@settings(max_examples=25, deadline=None)
@given(problems)
def test_the_step_bound_is_an_equality_on_a_quadratic(problem):
    before, after, full, _, _, error, alpha_h, _, smoothness, term, b = quadratic_step(problem)
    bound = bounds.step_bound(
        *(np.array([v]) for v in (before, after, term, b, alpha_h)), smoothness, error @ error
    )
    np.testing.assert_allclose(bound, full @ full, rtol=1e-7, atol=1e-7)
    smaller = bounds.step_bound(
        *(np.array([v]) for v in (before, after, term, b, alpha_h)),
        smoothness, np.array([0.5 * (error @ error)]),
    )  # fmt: skip
    assert bounds.violation_rate(np.array([full @ full]), smaller) == 1.0


def test_a_step_outside_the_lemma_has_no_bound():
    one = np.ones(3)
    bound = bounds.step_bound(one, one, one, one, np.array([0.5, 2.0, 2.5]), 1.0, 0.0)
    assert np.isnan(bound[1:]).all() and bound[0] > 0
    assert math.isnan(bounds.violation_rate(one[1:], bound[1:]))


def test_the_theorem_sums_the_step_bounds_for_a_constant_alpha():
    """For constant alpha the mean of the step bounds telescopes to the theorem's right side."""
    rng = np.random.default_rng(0)
    steps, alpha, smoothness, variance = 50, 0.05, 2.0, 0.7
    losses = rng.uniform(0, 1, steps + 1)
    gammas, b = rng.normal(size=(2, steps))
    per_step = bounds.step_bound(
        losses[:-1], losses[1:], gammas, b, np.full(steps, alpha), smoothness, variance
    )
    bound = bounds.minimum_bound(
        losses[0] - losses[-1], gammas.sum(), variance, alpha, steps, smoothness, b.sum()
    )
    assert math.isclose(per_step.mean(), bound, rel_tol=1e-12)


def test_best_c_minimises_the_bound_for_small_alpha():
    c = bounds.best_c(1.0, 0.5, 2.0, 1.0)
    steps = 10**10

    def bound(c):
        return bounds.minimum_bound(1.0, 0.5, 2.0, c / math.sqrt(steps), steps, 1.0)

    assert all(bound(c) <= bound(c * factor) for factor in (0.8, 0.95, 1.05, 1.2))


@pytest.mark.parametrize("drawn", [1, 2, 4])
def test_memory_error_by_enumeration(drawn):
    gradients = np.random.default_rng(2).normal(size=(5, 3))
    errors = [
        np.sum((gradients[list(chosen)].mean(0) - gradients.mean(0)) ** 2)
        for chosen in itertools.combinations(range(5), drawn)
    ]
    variance = np.mean(np.sum((gradients - gradients.mean(0)) ** 2, axis=1))
    expected = estimates.memory_error(5, drawn, variance)
    assert math.isclose(np.mean(errors), expected, rel_tol=1e-9)
    back = estimates.variance_from_errors(expected, 5, drawn)
    assert math.isclose(back, variance, rel_tol=1e-9)
    means = [gradients[list(c)].mean(0) for c in itertools.combinations(range(5), drawn)]
    np.testing.assert_allclose(np.mean(means, axis=0), gradients.mean(0), atol=1e-12)


def test_oracle_calls():
    assert estimates.oracle_calls(100, 10, 10) == 2000


def test_no_c_is_the_best_where_gamma_lowers_the_loss():
    assert math.isnan(bounds.best_c(0.5, -1.0, 1.0, 1.0))


def test_bad_arguments():
    with pytest.raises(UserError):
        bounds.minimum_bound(1, 0, 1, 2.0, 10, 1.0)
    with pytest.raises(UserError):
        estimates.memory_error(5, 6, 1.0)
    with pytest.raises(UserError):
        estimates.variance_from_errors(1.0, 5, 5)
