"""The engine against the whole step on two tapes, in float64 over 200 steps."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf import AGEM, NCCL, ExperienceReplay, ReservoirMemory, RingMemory, step_sizes
from nccl_tf.learner.reference import ReferenceReplay
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches

ALPHA = 0.125  # exact in float32


def network() -> keras.Model:
    def dense(units, seed, **kwargs):
        kernel = keras.initializers.GlorotUniform(seed)
        return keras.layers.Dense(units, kernel_initializer=kernel, dtype="float64", **kwargs)

    inputs = keras.Input(IMAGE_SHAPE, dtype="uint8")
    x = keras.layers.Rescaling(1 / 255, dtype="float64")(inputs)
    x = dense(8, 1, activation="tanh")(keras.layers.Flatten(dtype="float64")(x))
    return keras.Model(inputs, dense(4, 2)(x))


def memories():
    return {
        "ring": RingMemory(2, TASK_CLASSES, IMAGE_SHAPE, seed=5),
        "reservoir": ReservoirMemory(7, IMAGE_SHAPE, seed=5),
    }


def nccl(lambda_, f, g, alpha):
    return step_sizes.nccl(lambda_, f, g, alpha, tf.constant(1.0, alpha.dtype), 0.01)


def sum_of_means(lambda_, f, g, alpha):
    one = tf.ones_like(alpha)
    return step_sizes.joint(lambda_, alpha, one, one)


METHODS = {
    "nccl": (NCCL, {"delta": 0.01}, nccl),
    "nccl, two tapes": (NCCL, {"delta": 0.01, "gradients": "two_tapes"}, nccl),
    "agem": (AGEM, {}, lambda lambda_, f, g, alpha: step_sizes.agem(lambda_, f, alpha)),
    "er": (
        ExperienceReplay, {"er_weighting": "sum_of_means", "batch_norm": "separate"}, sum_of_means,
    ),
}  # fmt: skip


# Every rule and both memories; which memory it is, no rule knows.
USUAL = {("nccl", "ring"), ("nccl, two tapes", "reservoir"), ("agem", "reservoir"), ("er", "ring")}

PAIRS = [
    pytest.param(*pair, marks=[] if pair in USUAL else pytest.mark.slow)
    for pair in itertools.product(METHODS, ("ring", "reservoir"))
]


@pytest.mark.parametrize(("name", "memory"), PAIRS)
def test_the_engine_is_the_reference(name, memory):
    method, arguments, rule = METHODS[name]
    reference = ReferenceReplay(network(), memories()[memory], rule, memory_batch_size=4)
    learner = method(network(), memories()[memory], memory_batch_size=4, **arguments)
    for model in (reference, learner):
        model.compile(keras.optimizers.SGD(ALPHA))
    for task in (0, 1):
        batches = tiny_batches(task, count=500)
        reference.task.assign(task)
        reference.fit(batches, verbose=0, shuffle=False)
        reference.memory.close_task(task)
        learner.fit(batches, verbose=0)
    assert int(learner.optimizer.iterations) == 200
    for left, right in zip(
        learner.network.get_weights(), reference.network.get_weights(), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-9)
    for left, right in zip(learner.memory.variables, reference.memory.variables, strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_comparison_sees_a_wrong_rule():
    """The same check with a step size that is a thousandth off."""
    pairs = []
    for factor in (1.0, 1.001):

        def rule(*scalars, factor=factor):
            sizes = nccl(*scalars)
            return sizes._replace(beta_h=factor * sizes.beta_h)

        model = ReferenceReplay(network(), memories()["reservoir"], rule, memory_batch_size=4)
        model.compile(keras.optimizers.SGD(ALPHA))
        model.fit(tiny_batches(0, count=100), verbose=0, shuffle=False)
        pairs.append(model.network.get_weights())
    assert max(np.abs(a - b).max() for a, b in zip(*pairs, strict=True)) > 1e-6
