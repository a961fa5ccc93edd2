"""GEC: a step against NumPy, its quadratic program, its tolerance, and its limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf import GEC, ReservoirMemory
from nccl_tf.batch import Batch
from nccl_tf.gradients import Products
from nccl_tf.learner.step import Step
from nccl_tf.methods.gec import multiplier
from tests.methods.hand import (
    ALPHA,
    STREAM,
    WEIGHTS,
    FixedMemory,
    gradient,
    loss,
    network,
    one_step,
)
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network

MEMORY = STREAM[0], np.array([2, 0])  # the stream's images with other labels: Lambda is below 0
F, G = gradient(*MEMORY), gradient(*STREAM)
DOT, SQUARE = np.sum(F * G), np.sum(F * F)
problems = st.tuples(st.integers(0, 10**6), st.floats(-5, 5))


def by_hand(**kwargs):
    return GEC(network(), FixedMemory(*MEMORY), memory_batch_size=2, **kwargs)


def scalars(f, g) -> Products:
    return Products(*(tf.constant(value, tf.float64) for value in (f @ g, f @ f, g @ g)))


@pytest.mark.parametrize(("excess", "is_active"), [(0.5, True), (-0.1, True), (-9.0, False)])
def test_a_step_by_hand(excess, is_active):
    """A loss above the tolerance; one below it that would rise too fast; one far below it."""
    weight = max(0.0, (2.0 * excess - DOT) / (SQUARE + 1e-6))
    assert (weight > 0) == is_active
    learner = by_hand(gec_alpha=2.0, gec_tolerance=loss(*MEMORY) - excess)
    np.testing.assert_allclose(one_step(learner), WEIGHTS - ALPHA * (G + weight * F), rtol=1e-10)


@settings(max_examples=25, deadline=None)
@given(problems)
def test_it_is_the_nearest_vector_that_meets_the_constraint(problem):
    seed, least = problem
    rng = np.random.default_rng(seed)
    f, g = rng.normal(size=5) + 0.1, rng.normal(size=5)
    weight = float(multiplier(scalars(f, g), tf.constant(least, tf.float64)))
    step = g + weight * f
    slack = f @ step - least
    assert weight >= 0 and slack >= -1e-4 * (1 + weight)
    if weight:
        assert abs(slack) <= 1e-4 * (1 + weight)
    else:
        np.testing.assert_array_equal(step, g)
    # With its gradient along f alone and a multiplier of 0 or more, the program is solved.
    others = g + rng.normal(size=(100, 5)) * 3
    feasible = others[others @ f >= least]
    nearest = np.linalg.norm(step - g)
    assert (np.linalg.norm(feasible - g, axis=1) >= nearest - 1e-4 * (1 + nearest)).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_its_limits(seed):
    rng = np.random.default_rng(seed)
    f, g = rng.normal(size=5) + 0.1, rng.normal(size=5)
    products = scalars(f, g)
    at_tolerance = float(multiplier(products, tf.constant(0.0, tf.float64)))
    agem = max(0.0, -(f @ g) / (f @ f))
    assert at_tolerance == pytest.approx(agem, rel=1e-6 / (f @ f) + 1e-9)
    assert float(multiplier(products, tf.constant(-np.inf, tf.float64))) == 0.0
    nothing = scalars(0 * f, g)
    assert float(multiplier(nothing, tf.constant(-1.0, tf.float64))) == 0.0


def replaying() -> GEC:
    return GEC(tiny_network(), ReservoirMemory(20, IMAGE_SHAPE), memory_batch_size=4)


def learned(learner, task, count=60) -> float:
    """The mean loss of a task's steps, whose batches have the same size."""
    return learner.fit(tiny_batches(task, count), task_id=task, verbose=0).history["loss"][0]


def test_the_tolerance_is_of_the_stream_examples_of_all_ended_tasks():
    learner = replaying()
    learner.compile(keras.optimizers.SGD(0.25), run_eagerly=True)
    first = learned(learner, 0, 20)
    np.testing.assert_allclose(learner.tolerance.numpy(), 1.05 * first, rtol=1e-5)
    learner.fit(tiny_batches(1, 20), task_id=1, verbose=0, end_task=False)
    np.testing.assert_allclose(learner.tolerance.numpy(), 1.05 * first, rtol=1e-5)
    both = learner.mean_loss.numpy()
    learner.end_task()
    assert learner.tolerance.numpy() == pytest.approx(1.05 * both) != 1.05 * first
    assert learner.examples.numpy() == 2 * 20


def test_padding_and_skipped_steps_are_not_in_it():
    learner = replaying()
    images = np.zeros((3, *IMAGE_SHAPE), np.uint8)
    for loss_value, weights in ((2.0, [1, 1, 0]), (np.nan, [0, 0, 0]), (5.0, [1, 0, 0])):
        batch = Batch(images, np.zeros(3, np.int64), np.zeros(3, np.int64), np.float32(weights))
        step = Step([], None, {"loss": tf.constant(loss_value, tf.float32)})
        learner.after_step(batch.map(tf.constant), step)
    assert learner.mean_loss.numpy() == pytest.approx((2 * 2.0 + 5.0) / 3)
    learner.on_task_end(0)
    assert learner.tolerance.numpy() == pytest.approx(1.05 * 3.0)
