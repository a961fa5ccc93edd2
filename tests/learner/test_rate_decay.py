"""The stable regime: decay from task to task, momentum, dropout, and the limit without them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.learner.task_schedule import decayed_rate, rate_after_steps
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.finetune import Finetune
from nccl_tf.methods.registry import METHODS
from nccl_tf.networks import mlp
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
from tests.methods.learners import build
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network

DECAY, MOMENTUM = 0.75, 0.5  # exact in float32


def rate(eta, decay, task):
    return float(decayed_rate(tf.constant(eta), decay, tf.constant(task)))


def test_rates_fall_from_the_first_task_on_to_the_floor():
    rates = [rate(0.1, 0.8, k) for k in range(1, 61)]
    expected = [max(0.1 * 0.8**k, 5e-5) for k in range(1, 61)]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    assert rates[-1] == np.float32(5e-5)


def test_a_rate_below_the_floor_is_not_raised():
    assert rate(1e-5, 0.8, 3) == np.float32(1e-5)
    assert rate(1e-5, 1.0, 3) == np.float32(1e-5)


@pytest.mark.parametrize("decay", [1.5, float("nan")])
def test_a_decay_out_of_range_is_refused(decay):
    with pytest.raises(UserError, match="rate_decay"):
        Finetune(tiny_network(), rate_decay=decay)


def test_a_schedule_is_refused():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    with pytest.raises(UserError, match="schedule"):
        Finetune(tiny_network(), rate_decay=0.5).compile(keras.optimizers.SGD(schedule))


def test_steps_by_hand():
    """Two steps in the first task and one in the second: momentum begins there at zero."""
    learner = Finetune(network(), rate_decay=DECAY)
    learner.compile(keras.optimizers.SGD(ALPHA, momentum=MOMENTUM))
    velocity, weights = np.zeros_like(WEIGHTS), WEIGHTS
    for task, steps in ((1, 2), (2, 1)):
        learner.fit(stream().repeat(steps), verbose=0)
        velocity = np.zeros_like(WEIGHTS)
        for _ in range(steps):
            velocity = MOMENTUM * velocity - ALPHA * DECAY**task * gradient(*STREAM, weights)
            weights = weights + velocity
        np.testing.assert_allclose(learner.network.get_weights()[0], weights, rtol=1e-12)


def test_a_decay_by_steps_by_hand():
    """Two steps undecayed, two decayed once, over tasks and saved files; without momentum's end."""
    learner = Finetune(network(), rate_decay=DECAY, rate_decay_steps=2)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    weights = WEIGHTS
    for rate in (ALPHA, ALPHA, ALPHA * DECAY, ALPHA * DECAY, ALPHA * DECAY**2):
        learner.fit(stream(), verbose=0)
        weights = weights - rate * gradient(*STREAM, weights)
        np.testing.assert_allclose(learner.network.get_weights()[0], weights, rtol=1e-7)
    assert float(learner.optimizer.learning_rate) == ALPHA


def test_rates_by_steps_are_those_of_tf1():
    """`exponential_decay(0.1, step, 3100, 0.65, staircase=True)` at steps of the authors' tasks."""
    steps = np.array([0, 1562, 3099, 3100, 6199, 6200, 31_250])
    rates = [float(rate_after_steps(tf.constant(0.1), 0.65, 3100, tf.constant(s))) for s in steps]
    np.testing.assert_allclose(rates, 0.1 * 0.65 ** np.floor(steps / 3100), rtol=1e-6)


def test_a_decay_by_steps_needs_its_factor():
    with pytest.raises(UserError, match="pass rate_decay too"):
        Finetune(tiny_network(), rate_decay_steps=3)


def test_er_by_hand():
    learner = ExperienceReplay(
        network(), FixedMemory(*MEMORY), memory_batch_size=3, rate_decay=DECAY
    )
    both = (3 * gradient(*MEMORY) + 2 * gradient(*STREAM)) / 5
    np.testing.assert_allclose(one_step(learner), WEIGHTS - ALPHA * DECAY * both, rtol=1e-12)


def stable_learner():
    dropping = mlp(IMAGE_SHAPE, 4, hidden=(8,), dropout=0.25)
    learner = Finetune(dropping, rate_decay=0.5)
    learner.compile(keras.optimizers.SGD(0.25, momentum=0.8), run_eagerly=True)
    return learner


def test_the_rate_is_decayed_once_a_task():
    """However often fit is called or the rate assigned."""
    one, other = stable_learner(), stable_learner()
    for task in (0, 1):
        one.fit(tiny_batches(task, count=10), verbose=0, shuffle=False)
        for part in range(2):
            other.optimizer.learning_rate = 0.25
            batches = tiny_batches(task, count=10).skip(part).take(1)
            other.fit(batches, verbose=0, end_task=part == 1, shuffle=False)
            assert float(other.optimizer.learning_rate) == 0.25
    for left, right in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.nightly
def test_saved_in_mid_task_it_goes_on_with_momentum_and_dropout(tmp_path):
    learner = stable_learner()
    learner.fit(tiny_batches(0, 10), verbose=0)
    learner.fit(tiny_batches(1, 10), verbose=0, end_task=False)
    learner.save(tmp_path / "learner.keras")
    loaded = keras.models.load_model(tmp_path / "learner.keras")
    for each in (learner, loaded):
        each.fit(tiny_batches(1, 10, seed=4), verbose=0)
        each.fit(tiny_batches(0, 10), task_id=2, verbose=0)
    for left, right in zip(learner.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", [n for n, row in METHODS.items() if "rate_decay" in row.refuses])
def test_a_method_that_it_means_nothing_to_says_why(name):
    with pytest.raises(UserError, match=r"rate_decay=0\.5, but .*: leave rate_decay out"):
        build(name, rate_decay=0.5)
