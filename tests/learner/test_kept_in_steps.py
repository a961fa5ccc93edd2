"""State that hooks of a step write, and that a skipped step leaves alone."""

from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from tests.learner.on_two_devices import OfState
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network


@keras.saving.register_keras_serializable(package="tests_kept")
class Momentum(nccl_tf.Learner):
    """x⁺ = x - α m, with m the last gradient's half and the new one; the optimizer has none.

    Example:
        >>> learner = Momentum(tiny_network(input_dtype="float32"))
    """

    cannot: ClassVar[dict[str, str]] = {"refreezing": "keeps state for each trainable weight"}

    def __init__(self, network, **kwargs):
        super().__init__(network, **kwargs)
        self.sums = [
            self.state(f"sum_{i}", weight, weight.dtype, of_steps=True)
            for i, weight in enumerate(self.trainable_variables)
        ]

    def learn(self, batch):
        step = super().learn(batch)
        both = zip(self.sums, step.gradients, strict=True)
        values = [0.5 * total.value + gradient for total, gradient in both]
        for total, value in zip(self.sums, values, strict=True):
            total.assign(value)
        return step._replace(gradients=values)


def batches(**arguments):
    def as_floats(x, *rest):
        return {**x, "inputs": tf.cast(x["inputs"], tf.float32)}, *rest

    return tiny_batches(0, **arguments).map(as_floats)


def made(kind, **compile_arguments):
    memory = () if kind.memory_class is None else (nccl_tf.ReservoirMemory(20),)
    learner = kind(tiny_network(input_dtype="float32"), *memory)
    learner.compile(keras.optimizers.SGD(0.1), **compile_arguments)
    return learner


def test_a_learner_is_sgd_with_momentum():
    learner, plain = made(Momentum), nccl_tf.Finetune(tiny_network(input_dtype="float32"))
    plain.compile(keras.optimizers.SGD(0.1, momentum=0.5), run_eagerly=True)
    for each in (learner, plain):
        each.fit(batches(count=20), verbose=0)
    for ours, keras_own in zip(learner.network.weights, plain.network.weights, strict=True):
        np.testing.assert_allclose(ours.numpy(), keras_own.numpy(), atol=1e-6)


@pytest.mark.seconds(30)  # a program of XLA
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (OfState, {}),
        (OfState, {"run_eagerly": True}),
        (Momentum, {"run_eagerly": True}),
        (Momentum, {"jit_compile": True}),
    ],
)
def test_a_skipped_step_leaves_it_alone(kind, how):
    """A step is undone alike, whichever hook writes: a graph of each, one compiled by XLA."""
    learner = made(kind, **how)
    learner.fit(batches(count=20), verbose=0, end_task=False)
    before = [variable.numpy() for variable in learner.variables]
    assert any(value.any() for value in before)
    images = np.full((5, *IMAGE_SHAPE), np.nan, np.float32)  # no finite gradient
    learner.fit(images, np.zeros(5, int), verbose=0)
    skipped = int(learner.skipped.numpy())
    assert skipped == 1
    kept = {"task_is_open", "tasks_ended", "skipped", "skipped_in_a_row"}
    for variable, value in zip(learner.variables, before, strict=True):
        if variable.name not in kept:
            np.testing.assert_array_equal(variable.numpy(), value, variable.name)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [Momentum, OfState])
def test_every_item_holds(kind):
    nccl_tf.check_learner(kind)
