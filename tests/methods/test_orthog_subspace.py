"""ORTHOG-SUBSPACE: projections, steps on the Stiefel manifold, and whole steps by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.orthog_subspace import stiefel
from nccl_tf.methods.orthog_subspace.method import (
    RENEWAL,
    OrthogSubspace,
    coordinate_projections,
)
from nccl_tf.networks import mlp, resnet18_reduced
from tests.methods.hand import ALPHA
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

pytestmark = pytest.mark.eager

RNG = np.random.default_rng(11)
BATCHES = [(RNG.normal(size=(n, 2, 3, 1)), RNG.integers(0, 3, n)) for n in (4, 5)]
MASKS = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]], float)


def test_projections_are_orthogonal_and_of_equal_rank():
    rows = coordinate_projections(256, 20)
    p = rows.astype(int)
    np.testing.assert_array_equal(p @ p.T, 12 * np.eye(20, dtype=int))
    assert rows.sum() <= 256 and rows[0, :12].all() and not rows[:, 240:].any()
    assert coordinate_projections(160, 17).sum(axis=1).tolist() == [9] * 17


def orthonormal(rows, columns, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(rows, columns)))[0]


def skew(w, g):
    h = g - w @ (w.T @ g) / 2
    return h @ w.T - w @ h.T


@pytest.mark.parametrize("shape", [(7, 3), (4, 4)])
@pytest.mark.parametrize("rate", [0.01, 10.0])
def test_the_exact_step_is_the_cayley_transform(shape, rate):
    w, g = orthonormal(*shape), np.random.default_rng(1).normal(size=shape)
    a = skew(w, g)
    np.testing.assert_allclose(a, -a.T)
    np.testing.assert_allclose(a @ w, g - w @ (w.T @ g + g.T @ w) / 2, atol=1e-12)
    tau = min(rate, 1 / (np.abs(a).sum(axis=1).max() + 1e-8))
    eye = np.eye(shape[0])
    expected = np.linalg.solve(eye + tau / 2 * a, (eye - tau / 2 * a) @ w)
    moved = stiefel.step(tf.constant(w), tf.constant(g), tf.constant(rate, tf.float64), None)
    np.testing.assert_allclose(moved, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(moved.numpy().T @ moved.numpy(), np.eye(shape[1]), atol=1e-12)


def test_two_iterations_are_those_of_the_released_code():
    w, g = orthonormal(6, 2), np.random.default_rng(1).normal(size=(6, 2))
    a, tau = skew(w, g), 0.01
    expected = w - tau * a @ w
    for _ in range(2):
        expected = w - tau / 2 * a @ (w + expected)
    moved = stiefel.step(tf.constant(w), tf.constant(g), tf.constant(tau, tf.float64), 2)
    np.testing.assert_allclose(moved, expected, rtol=1e-12)


def test_only_tall_kernels_can_be_orthonormal():
    shapes = {(8, 4): True, (4, 4): True, (3, 4): False, (3, 3, 2, 18): True, (9,): False}
    for shape, expected in shapes.items():
        assert stiefel.can_be_orthonormal(tf.Variable(tf.zeros(shape))) == expected


def network():
    """images [n, 2, 3, 1] -> relu(x A) B in float64, five features, three classes."""
    model = keras.Sequential(
        [
            keras.Input((2, 3, 1), dtype="float64"),
            keras.layers.Flatten(dtype="float64"),
            keras.layers.Dense(5, "relu", use_bias=False, dtype="float64"),
            keras.layers.Dense(3, use_bias=False, dtype="float64"),
        ]
    )
    rng = np.random.default_rng(2)
    model.set_weights([orthonormal(6, 5), rng.normal(size=(5, 3))])
    return model


def gradients(images, labels, weights, mask):
    """Gradients of the mean cross-entropy of relu((x A) P) B."""
    a, b = weights
    x = images.reshape(len(labels), 6)
    hidden = np.maximum((x @ a) * mask, 0)
    logits = hidden @ b
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    p /= len(labels)
    return [x.T @ ((p @ b.T) * mask * (hidden > 0)), hidden.T @ p]


def batch_of(task):
    images, labels = BATCHES[task]
    inputs = {"inputs": images, "task": np.full(len(labels), task, np.int32)}
    return tf.data.Dataset.from_tensors((inputs, labels.astype(np.int32)))


def test_without_a_memory_it_is_sgd_through_the_projection():
    learner = OrthogSubspace(network(), num_tasks=2)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    weights = network().get_weights()
    for task in (0, 1):
        learner.fit(batch_of(task), verbose=0)
        steps = gradients(*BATCHES[task], weights, MASKS[task])
        weights = [w - ALPHA * g for w, g in zip(weights, steps, strict=True)]
    for left, right in zip(learner.network.get_weights(), weights, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-15)


def test_a_memory_step_follows_the_manifold():
    """In the second task G = (f + g)/2, f on all that is stored of the first."""
    memory = RingMemory(4, [[0, 1, 2], [0, 1, 2]], (2, 3, 1), example_dtype="float64")
    learner = OrthogSubspace(network(), memory, num_tasks=2)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    learner.fit(batch_of(0), verbose=0)
    learner.fit(batch_of(1), verbose=0)
    weights = network().get_weights()
    for task in (0, 1):
        g = gradients(*BATCHES[task], weights, MASKS[task])
        if task == 1:
            f = gradients(*BATCHES[0], weights, MASKS[0])
            g = [(one + other) / 2 for one, other in zip(f, g, strict=True)]
        a = skew(weights[0], g[0])
        tau = min(ALPHA, 1 / (np.abs(a).sum(axis=1).max() + 1e-8))
        eye = np.eye(6)
        moved = np.linalg.solve(eye + tau / 2 * a, (eye - tau / 2 * a) @ weights[0])
        weights = [moved, weights[1] - ALPHA * g[1]]
    for left, right in zip(learner.network.get_weights(), weights, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-12)


def test_a_past_task_is_drawn_uniformly(monkeypatch):
    """The open one never is."""
    memory = RingMemory(1, TASK_CLASSES * 2, IMAGE_SHAPE)
    learner = OrthogSubspace(tiny_network(), memory, num_tasks=4)
    batch = Batch(
        tf.zeros((4, *IMAGE_SHAPE), tf.uint8), tf.constant([0, 2, 0, 2]), tf.range(4), tf.ones(4)
    )
    memory.write(batch)
    for task in range(3):
        memory.close_task(task)
    drawn = []
    monkeypatch.setattr(
        learner, "learn_and_apply", lambda _, batch, replay: drawn.append(int(replay.tasks[0]))
    )
    for _ in range(200):
        learner.update(batch)
    # Four standard deviations of a binomial count.
    counts = np.bincount(drawn, minlength=4)
    assert counts[3] == 0 and (np.abs(counts[:3] - 200 / 3) < 4 * np.sqrt(200 * 2 / 9)).all()


def test_kernels_stay_orthonormal_and_the_head_does_not():
    learner = OrthogSubspace(
        mlp(IMAGE_SHAPE, 4, hidden=(8, 8)), RingMemory(2, TASK_CLASSES, IMAGE_SHAPE), num_tasks=2
    )
    learner.compile(keras.optimizers.SGD(0.5), run_eagerly=True)
    for task in (0, 1):
        learner.fit(tiny_batches(task, count=40), verbose=0)
    first, _, second, _, head, _ = learner.network.get_weights()
    for kernel in (first, second):
        np.testing.assert_allclose(kernel.T @ kernel, np.eye(8), atol=1e-5)
    assert np.abs(head.T @ head - np.eye(4)).max() > 1e-3


def test_convolutions_start_orthonormal_where_they_are_tall():
    learner = OrthogSubspace(
        resnet18_reduced((8, 8, 3), 4), RingMemory(2, TASK_CLASSES, (8, 8, 3)), num_tasks=2
    )
    kernels = [layer.kernel for layer in learner.network.layers if hasattr(layer, "kernel")]
    assert len(kernels) == 21
    for kernel in kernels[:-1]:
        matrix = stiefel.as_matrix(kernel.value)
        if matrix.shape[0] >= matrix.shape[1]:
            np.testing.assert_allclose(
                tf.transpose(matrix) @ matrix, np.eye(matrix.shape[1]), atol=1e-5
            )


def test_a_skipped_step_renews_no_kernel():
    memory = RingMemory(2, TASK_CLASSES, IMAGE_SHAPE, example_dtype="float32")
    network = tiny_network(input_dtype="float32")
    learner = OrthogSubspace(network, memory, num_tasks=2, cayley_iterations=2)
    learner.compile(keras.optimizers.SGD(ALPHA))
    kernel = learner.network.trainable_variables[0]
    kernel.assign(kernel * 1.01)
    before = kernel.numpy()
    learner.draws.assign(RENEWAL - 1)
    images = np.full((4, *IMAGE_SHAPE), np.nan, np.float32)
    learner.train_on_batch(images, np.arange(4) % 2)
    assert int(learner.progress.skipped.numpy()) == 1 and int(learner.draws.numpy()) == RENEWAL
    np.testing.assert_array_equal(kernel, before)


def test_an_example_s_task_picks_the_projection():
    """The latest task does where there is none."""
    learner = OrthogSubspace(network(), num_tasks=2)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    learner.fit(batch_of(0), verbose=0)
    learner.fit(batch_of(1), verbose=0)
    images = BATCHES[0][0]
    a, b = learner.network.get_weights()
    for task in (0, 1):
        inputs = {"inputs": images, "task": np.full(4, task, np.int32)}
        expected = np.maximum(images.reshape(4, 6) @ a * MASKS[task], 0) @ b
        np.testing.assert_allclose(learner(inputs, training=True), expected, rtol=1e-5)
    np.testing.assert_array_equal(learner(images), learner(inputs))


def test_what_it_cannot_split_or_share_is_refused():
    with pytest.raises(UserError, match="8 features"):
        OrthogSubspace(tiny_network(), num_tasks=9)
    soft = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Softmax()])
    with pytest.raises(UserError, match="Softmax"):
        OrthogSubspace(soft, num_tasks=1)
    learner = OrthogSubspace(tiny_network(), num_tasks=2)
    for ask in (learner.begin_task, lambda task: learner.predict(np.zeros(3), task_id=task)):
        with pytest.raises(UserError, match="num_tasks"):
            ask(2)
    with pytest.raises(UserError, match="cayley_iterations"):
        OrthogSubspace(tiny_network(), num_tasks=2, cayley_iterations=0)


def settings(**given):
    return resolve({"method": "orthog_subspace", **given})


def test_the_command_has_a_ring_for_split_streams_alone():
    """Permuted streams have no memory."""
    assert settings(dataset="permuted_digits").memory is None
    assert settings(dataset="permuted_digits", orthog_memory="on").memory == "ring"
    assert settings(dataset="split_digits").memory == "ring"
    assert settings(dataset="split_digits", orthog_memory="off").memory is None
    with pytest.raises(UserError, match="--orthog_memory=on"):
        settings(dataset="permuted_digits", memory_per_class=1)


def test_before_its_first_task_it_predicts_as_for_that_one():
    learner = OrthogSubspace(tiny_network(), num_tasks=2)
    learner.compile(keras.optimizers.SGD(0.1))
    images = np.full((3, *IMAGE_SHAPE), 9, np.uint8)
    before = learner.predict(images, verbose=0)
    np.testing.assert_array_equal(before, learner.predict(images, task_id=0, verbose=0))
    assert (before != learner.predict(images, task_id=1, verbose=0)).any()
