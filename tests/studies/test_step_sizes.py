"""The rules of the study of step sizes, by hand, and the verdicts of its table."""

import runpy
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.gradients import Products
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.learner.step import GradientPair
from nccl_tf.methods.registry import METHODS
from studies.step_sizes.__main__ import verdict
from tests.methods.hand import (
    ALPHA,
    STREAM,
    WEIGHTS,
    FixedMemory,
    gradient,
    network,
    one_step,
)
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network

FILE = Path(__file__).parents[2] / "studies" / "step_sizes" / "rules.py"


@pytest.fixture(scope="module")
def study():
    before = dict(METHODS)
    yield runpy.run_path(str(FILE))
    METHODS.clear()
    METHODS.update(before)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ((2.1, -0.9), "better"), ((2.1, -1.1), "level"), ((-2.1, 0.9), "worse"),
        ((2.1, -2.1), "mixed"),
    ],
)  # fmt: skip
def test_the_verdict_on_gains_in_standard_errors(gains, expected):
    assert verdict(np.array(gains), np.ones(2)) == expected


def products(lambda_: float, memory: float, stream: float) -> Products:
    return Products(*(tf.constant(value, tf.float64) for value in (lambda_, memory, stream)))


@pytest.mark.parametrize(
    ("rule", "numbers", "lambda_", "memory", "stream", "weight"),
    [
        ("bounded", (2.0,), 3.0, 4.0, 9.0, 1.0),  # transfer: a replay step
        ("bounded", (2.0,), -1.0, 4.0, 9.0, 1.25),  # NCCL's alpha_H/alpha in interference
        ("bounded", (2.0,), -5.0, 4.0, 9.0, 2.0),  # 2.25, bounded
        ("bounded", (2.0,), -1.0, 0.0, 9.0, 1.0),  # nothing to divide by
        ("guaranteed", (1.0, 2.0), 3.0, 4.0, 9.0, 0.25),  # the stream gives 3 of 4
        ("guaranteed", (1.0, 2.0), 5.0, 4.0, 9.0, 0.0),
        ("guaranteed", (0.5, 2.0), -1.0, 4.0, 9.0, 0.75),
        ("guaranteed", (1.0, 2.0), -5.0, 4.0, 9.0, 2.0),
        ("fresh", (4.0,), 0.0, 1.0, 9.0, 3.0),
        ("fresh", (2.0,), 0.0, 1.0, 9.0, 2.0),
        ("fresh", (4.0,), 0.0, 9.0, 1.0, 1.0),
        ("fresh", (4.0,), 0.0, 0.0, 1.0, 1.0),
    ],
)
def test_a_rule_by_hand(study, rule, numbers, lambda_, memory, stream, weight):
    assert float(study[rule](products(lambda_, memory, stream), *numbers)) == weight


def test_rules_are_continuous_where_the_gradients_are_orthogonal(study):
    for rule, numbers in (("bounded", (2.0,)), ("guaranteed", (1.0, 2.0))):
        below, above = (study[rule](products(side * 1e-9, 4.0, 9.0), *numbers) for side in (-1, 1))
        assert abs(float(below) - float(above)) < 1e-8


@pytest.mark.parametrize("slack", [0.5, 1.0])
def test_guaranteed_descent_is_the_nearest_that_lowers_enough(study, slack):
    """Among d with <f, d> >= s |f|^2 none is nearer to g; with the constraint idle, d is g."""
    draws = np.random.default_rng(0)
    for _ in range(20):
        f, g = draws.normal(size=(2, 3))
        weight = float(study["guaranteed"](products(f @ g, f @ f, g @ g), slack, 1e9))
        nearest = weight * f + g
        assert f @ nearest >= slack * f @ f - 1e-9
        others = nearest + draws.normal(size=(200, 3))
        allowed = others[others @ f >= slack * f @ f]
        assert (np.sum((allowed - g) ** 2, axis=1) >= np.sum((nearest - g) ** 2) - 1e-9).all()


OPPOSED = STREAM[0], np.array([2, 0])  # the stream's images with other labels: Lambda is below 0
F, G = gradient(*OPPOSED), gradient(*STREAM)
SHARE = np.sum(F * G) / np.sum(F * F)
STEPS = {
    "AverageLoss": 1.0 * F + 1.0 * G,  # one task has ended, or none
    "Bounded": min(2.0, 1.0 - SHARE) * F + G,
    "Guaranteed": min(2.0, 1.0 - SHARE) * F + G,
    "Fresh": min(2.0, max(1.0, np.linalg.norm(G) / np.linalg.norm(F))) * F + G,
    "BoundedByLayer": min(2.0, 1.0 - SHARE) * F + G,
    "AveragedReference": F + G,  # the average begins at the weights
}


def by_hand(cls, **arguments):
    return cls(network(), FixedMemory(*OPPOSED), memory_batch_size=2, **arguments)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_by_hand(study, name):
    assert SHARE < 0
    learned = one_step(by_hand(study[name]))
    np.testing.assert_allclose(learned, WEIGHTS - ALPHA * STEPS[name], rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "u", "v"),
    [("AverageLoss", 1.5, 0.5), ("AverageLossMemory", 1.5, 1.0), ("AverageLossStream", 1.0, 0.5)],
)
def test_average_loss_counts_the_tasks_that_ended(study, name, u, v):
    learner = by_hand(study[name])
    learner.progress.tasks_ended.assign(3)
    expected = WEIGHTS - ALPHA * (u * F + v * G)
    np.testing.assert_allclose(one_step(learner), expected, rtol=1e-10)


def test_the_averaged_network_is_a_reference(study):
    learner = by_hand(study["AveragedReference"], pull=3.0)
    average = learner.option(AverageWeights)
    average.steps.assign(1)
    (averages,) = average.copy.variables
    averages.assign(WEIGHTS + 0.5)
    flat = OPPOSED[0].reshape(2, 4)
    distances = flat @ WEIGHTS - flat @ averages.numpy()
    pulled = F + 3.0 * flat.T @ (2 / 3 * distances) / 2
    np.testing.assert_allclose(one_step(learner), WEIGHTS - ALPHA * (pulled + G), rtol=1e-6)


def test_each_variable_has_a_weight_of_its_own(study):
    learner = by_hand(study["BoundedByLayer"])
    f = [tf.constant([2.0, 0.0]), tf.constant([1.0])]
    g = [tf.constant([-1.0, 5.0]), tf.constant([4.0])]
    losses = {"loss": tf.constant(1.0), "memory_loss": tf.constant(1.0)}
    learner.compile(keras.optimizers.SGD(ALPHA))
    combined, _ = learner.combine(GradientPair(f, g, losses, None))
    assert [row.numpy().tolist() for row in combined] == [[2.0, 5.0], [5.0]]  # 1.5 f + g, f + g


@pytest.mark.nightly
def test_it_learns_two_tasks_and_is_saved(study, tmp_path):
    memory = nccl_tf.ReservoirMemory(12, IMAGE_SHAPE, seed=3)
    learner = study["AveragedReference"](tiny_network(), memory, memory_batch_size=4, seed=3)
    learner.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"])
    for task in (0, 1):
        learner.fit(tiny_batches(task, 200), task_id=task, verbose=0)
    with learner.use_weights("plain"):
        assert learner.evaluate(tiny_batches(1, seed=9), verbose=0)[1] > 0.9
    learner.save(tmp_path / "learner.keras")
    loaded = keras.models.load_model(tmp_path / "learner.keras")
    for mine, other in zip(learner.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)
