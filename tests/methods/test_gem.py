"""GEM: its quadratic program, a step against NumPy, and its limits."""

from itertools import chain, combinations

import keras
import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nccl_tf.batch import Batch
from nccl_tf.methods.gem import GEM, dual_weights, projection
from tests.methods.hand import (
    ALPHA,
    MEMORY,
    STREAM,
    WEIGHTS,
    FixedMemory,
    gradient,
    network,
    one_step,
    stream,
)

G = gradient(*STREAM)
KNOWN = np.ones(3, bool)
numbers = st.floats(-2, 2).map(lambda x: round(x, 2))
vectors = st.integers(1, 4).flatmap(lambda k: arrays(float, (k + 1, 5), elements=numbers))


class TaskMemory(FixedMemory):
    """Always the same examples of two past tasks, the second with one slot empty."""

    def __init__(self, counts=(2, 1)):
        super().__init__(*MEMORY)
        # Labels against those of the stream, so that there is something to project.
        images, labels = np.stack([STREAM[0], MEMORY[0][:2]]), np.array([[2, 0], [0, 1]])
        self.parts = images, labels, np.arange(2) < np.array(counts)[:, None]

    def read_tasks(self):
        images, labels, weights = self.parts
        return Batch(
            tf.constant(images), tf.constant(labels, tf.int64),
            tf.zeros(labels.shape, tf.int64), tf.constant(weights, tf.float32),
        )  # fmt: skip

    def gradients(self):
        images, labels, weights = self.parts
        known = zip(images[weights.any(1)], labels[weights.any(1)], weights, strict=False)
        return np.stack([gradient(i[w], y[w]).ravel() for i, y, w in known])


def least(matrix, products, margin):
    """The minimiser of v' matrix v / 2 + products' v over v >= margin, by trying every free set."""
    k, best = len(products), None
    for free in chain.from_iterable(combinations(range(k), n) for n in range(k + 1)):
        v, free = np.full(k, float(margin)), list(free)
        slope = (matrix @ v + products)[free]
        v[free] -= np.linalg.lstsq(matrix[np.ix_(free, free)], slope, rcond=None)[0]
        value = v @ matrix @ v / 2 + products @ v
        if (v >= margin - 1e-12).all() and (best is None or value < best[0]):
            best = value, v
    return best[1]


def check_projected(past, gradient, found):
    """z is feasible and satisfies the Karush-Kuhn-Tucker conditions, so it is the nearest point."""
    z = gradient + found @ past
    tolerance = 1e-6 * (1 + np.abs(found).max())
    assert (past @ z >= -tolerance).all()
    assert (found >= 0).all()
    np.testing.assert_allclose(found * (past @ z), 0, atol=tolerance)


@given(vectors)
@settings(deadline=None, max_examples=25)
def test_the_step_is_the_nearest_feasible_one(rows):
    """The nearest that points against no past gradient."""
    past, g = rows[:-1], rows[-1]
    known, violated = np.ones(len(past), bool), (past @ g < 0).any()
    found, flags = projection(past @ past.T, past @ g, known, 0.0, 0.0)
    check_projected(past, g, found)
    assert flags.tolist() == [violated, 0] and (violated or not found.any())


@given(vectors, st.floats(0, 2))
@settings(deadline=None, max_examples=25)
def test_the_margin_bounds_and_the_program_is_minimised(rows, margin):
    past, products = rows[:-1], rows[:-1] @ rows[-1]
    matrix = past @ past.T + 1e-3 * np.eye(len(past))
    found = dual_weights(past @ past.T, products, margin, 1e-3)
    np.testing.assert_allclose(found, least(matrix, products, margin), rtol=1e-5, atol=1e-5)


@given(arrays(np.float32, (3, 3), elements=st.floats(width=32)), st.sampled_from([0.0, 0.5]))
@settings(deadline=None, max_examples=25)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_program_raises_and_all_weights_are_finite(gram, ridge):
    products = np.float32([-1, 1, -1])
    weights, (violated, fallback) = projection(gram, products, KNOWN, 0.0, ridge)
    assert np.isfinite(weights).all() and violated == 1 and fallback in (0, 1)
    assert not (fallback and weights.any())


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_a_program_without_a_solution_falls_back(value):
    gram = np.full((3, 3), value, np.float32)
    weights, flags = projection(gram, -np.ones(3, np.float32), KNOWN, 0.5, 0.0)
    assert not weights.any() and flags.tolist() == [1, 1]


def test_tasks_without_examples_have_no_weight():
    past = np.eye(3)
    weights, _ = projection(past, -np.ones(3), np.array([True, False, True]), 0.5, 0.0)
    np.testing.assert_allclose(weights, [1, 0, 1])


@pytest.mark.parametrize(
    ("margin", "ridge", "counts"), [(0.0, 0.0, (2, 1)), (0.5, 1e-3, (2, 0)), (2.0, 0.1, (2, 1))]
)
def test_a_step_by_hand(margin, ridge, counts):
    memory = TaskMemory(counts)
    past = memory.gradients()
    assert (past @ G.ravel()).min() < 0
    v = least(past @ past.T + ridge * np.eye(len(past)), past @ G.ravel(), margin)
    expected = WEIGHTS - ALPHA * (G + (v @ past).reshape(G.shape))
    learner = GEM(network(), memory, gem_margin=margin, gem_ridge=ridge)
    after = one_step(learner, in_graph=counts == (2, 0))
    np.testing.assert_allclose(after, expected, rtol=1e-9)


def test_a_solver_that_fails_is_counted_and_the_step_is_sgd(monkeypatch):
    def fails(*args, **kwargs):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(scipy.optimize, "nnls", fails)
    learner = GEM(network(), TaskMemory())
    learner.compile(keras.optimizers.SGD(ALPHA))
    logs = learner.fit(stream(), verbose=0).history
    assert logs["violation"] == logs["qp_fallback"] == [1.0] and "qp_fallback" in GEM.cumulative
    np.testing.assert_allclose(learner.network.get_weights()[0], WEIGHTS - ALPHA * G, rtol=1e-12)
