"""Gamma, gradients, B and the step bound of a softmax regression, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf import ExperienceReplay, Finetune
from nccl_tf.callbacks import ForgettingDiagnostics
from nccl_tf.diagnostics.full_gradient import FullGradient
from nccl_tf.diagnostics.memory_draws import (
    StepRule,
    draw_memory,
    draw_step,
)
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task
from tests.methods.hand import ALPHA, MEMORY, STREAM, FixedMemory, gradient, network, stream

IMAGES = tf.TensorSpec((None, 2, 2, 1), tf.float64)
RNG = np.random.default_rng(3)


def examples(count):
    labels = np.concatenate([np.arange(3), RNG.integers(0, 3, count - 3)]).astype(np.int32)
    return Examples(RNG.normal(size=(count, 2, 2, 1)), labels)


FIRST, SECOND, TEST = examples(450), examples(30), examples(25)


def loss(part, weights):
    logits = part.inputs.reshape(-1, 4) @ weights
    logits -= logits.max(axis=1, keepdims=True)
    normal = np.log(np.exp(logits).sum(axis=1))
    return np.mean(normal - logits[np.arange(len(part.labels)), part.labels])


def tasks():
    return [
        Task(i, (0, 1, 2), len(part.labels), lambda part=part: part, lambda: TEST)
        for i, part in enumerate((FIRST, SECOND))
    ]


class UpcomingMemory(FixedMemory):
    """Also tells what it will read, which is always the same."""

    def upcoming(self, count):
        return self.read(count)


@pytest.mark.parametrize("weighting", ["joint_mean", "sum_of_means"])
def test_gamma_of_a_joint_step(weighting):
    memory = UpcomingMemory(*MEMORY)
    vars(memory)["capacity"] = 7
    learner = ExperienceReplay(network(), memory, memory_batch_size=3, er_weighting=weighting)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    diagnostics = ForgettingDiagnostics(tasks(), "full", smoothness=2.0)
    learner.fit(stream(), verbose=0, callbacks=[diagnostics])
    weights = learner.network.get_weights()[0]
    learner.fit(stream(), verbose=0, callbacks=[diagnostics])
    f, g = gradient(*MEMORY, weights).ravel(), gradient(*STREAM, weights).ravel()
    share = (0.6, 0.4) if weighting == "joint_mean" else (1.0, 1.0)
    alpha_h, beta_h = ALPHA * share[0], ALPHA * share[1]
    expected = 0.5 * beta_h**2 * 2 * (g @ g) - beta_h * (1 - alpha_h * 2) * (f @ g)
    row = diagnostics.record()["tasks"][1]
    np.testing.assert_allclose(row["gamma_raw"], expected, rtol=1e-6)
    np.testing.assert_allclose(row["gamma_surrogate"], expected, rtol=1e-6)
    np.testing.assert_allclose(row["gamma_raw_at_0"], -beta_h * (f @ g), rtol=1e-6)
    assert (row["steps"], row["alpha"], row["smoothness"]) == (1, ALPHA, 2.0)


def test_norms_and_losses_at_task_ends():
    learner = Finetune(network())
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    diagnostics = ForgettingDiagnostics(tasks(), "full")
    for _ in range(2):
        learner.fit(stream(), verbose=0, callbacks=[diagnostics])
    weights = learner.network.get_weights()[0]
    row = diagnostics.record()["tasks"][1]
    norm = np.linalg.norm(gradient(FIRST.inputs, FIRST.labels, weights))
    np.testing.assert_allclose(row["first_task"]["gradient_norm"], norm, rtol=1e-9)
    np.testing.assert_allclose(row["previous"]["gradient_norm"], norm, rtol=1e-9)
    np.testing.assert_allclose(row["first_task"]["loss"], loss(FIRST, weights), rtol=1e-9)
    np.testing.assert_allclose(row["first_task"]["test_loss"], loss(TEST, weights), rtol=1e-9)
    seen = Examples(*(np.concatenate(pair) for pair in zip(FIRST, SECOND, strict=True)))
    whole = np.linalg.norm(gradient(seen.inputs, seen.labels, weights))
    np.testing.assert_allclose(row["seen"]["gradient_norm"], whole, rtol=1e-9)
    assert row["seen"]["examples"] == 480


def test_a_draw_books_its_step_and_leaves_the_weights():
    model = network()
    weights = model.get_weights()[0]

    def losses(batch):
        logits = model(batch.inputs)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits)

    full = FullGradient(model.trainable_variables, losses, IMAGES)
    seen = []
    rule = StepRule(lambda *given: seen.extend(given) or (0.3, 0.2, False), 0.3, 2.0, False)
    draw = draw_step(
        np.random.default_rng(0), full, [(0, FIRST)], (1, SECOND), full.sums(FIRST, 0), rule,
        {"slots_per_class": 2, "capacity": 6}, (450, 30),
    )  # fmt: skip
    random = np.random.default_rng(0)
    kept = draw_memory(random, [FIRST.labels], slots_per_class=2, capacity=6)
    f = gradient(FIRST.inputs[kept], FIRST.labels[kept], weights).ravel()
    g = gradient(SECOND.inputs, SECOND.labels, weights).ravel()
    whole = gradient(FIRST.inputs, FIRST.labels, weights).ravel()
    e = f - whole
    assert len(kept) == 6
    least = -((1 - 0.3 * 2) ** 2) * (f @ g) ** 2 / (2 * 2 * (g @ g))
    np.testing.assert_allclose(draw.gamma_least, least, rtol=1e-6)
    losses = loss(FIRST.take(kept), weights), loss(SECOND, weights)
    np.testing.assert_allclose(seen, [f @ g, f @ f, g @ g, *losses], rtol=1e-9)
    b = (2.0 * 0.3**2 - 0.3) * (whole @ e) + 0.2 * (g @ e)
    np.testing.assert_allclose(draw.overfitting, b, rtol=1e-9)
    np.testing.assert_allclose(draw.overfitting_slope, 0.09 * (whole @ e), rtol=1e-7)
    np.testing.assert_allclose(draw.error_squared, e @ e, rtol=1e-9)
    np.testing.assert_allclose(draw.step, -0.3 * f - 0.2 * g, rtol=1e-9)
    after = full.loss_after(draw.step, FIRST, 0) / 450
    there = weights + draw.step.reshape(weights.shape)
    np.testing.assert_allclose(after, loss(FIRST, there), rtol=1e-9)
    np.testing.assert_array_equal(model.get_weights()[0], weights)


def test_memories_are_drawn_by_class_and_task_or_uniformly():
    labels = [np.array([0, 0, 0, 1]), np.array([0, 1, 1, 1, 1])]
    random = np.random.default_rng(0)
    counts = np.zeros(9)
    for _ in range(300):
        kept = draw_memory(random, labels, slots_per_class=2, capacity=99)
        assert len(set(kept)) == 6
        assert [sum(k < 3 for k in kept), sum(k > 4 for k in kept)] == [2, 2]
        counts[kept] += 1
    assert counts[3] == counts[4] == 300 and np.abs(counts[:3] - 200).max() < 45
    kept = draw_memory(random, labels, slots_per_class=None, capacity=5)
    assert len(set(kept)) == 5
    assert sorted(draw_memory(random, labels, slots_per_class=None, capacity=50)) == list(range(9))
