"""SLDA against examples worked out by hand one by one, and its limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

# Two features, three classes; worked out by hand with eps = 1e-4.
X = np.array([[1, 0], [0.5, 1], [0, 1], [-1, 0.5], [0.5, 0.5], [1, 1]], np.float32)
Y = np.array([0, 1, 1, 2, 0, 1], np.int32)
COVARIANCE = [[0.2850694444, -0.0541666667], [-0.0541666667, 0.1479166667]]
MEANS = [[0.75, 0.25], [0.5, 1.0], [-1.0, 0.5]]
SCORES = [
    [1.6260155891, -1.5276870063, -5.1819401653],
    [2.8900313954, 4.7914728598, -1.3908119119],
]


def learner(width=2, classes=3, **kwargs):
    """One whose features are its inputs."""
    network = keras.Sequential([keras.Input((width,)), keras.layers.Dense(classes)])
    made = nccl_tf.SLDA(network, **kwargs)
    made.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return made


def fitted(inputs, labels, *, batch_size=2, **kwargs):
    made = learner(inputs.shape[1], int(labels.max()) + 1, **kwargs)
    made.fit(inputs, labels, batch_size=batch_size, shuffle=False, verbose=0)
    return made


def state(made) -> list[np.ndarray]:
    return [made.means.numpy(), made.counts.numpy(), made.covariance.numpy()]


def many(count=60, width=5, classes=4):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count).astype(np.int32)
    return (rng.normal(size=(count, width)) + labels[:, None]).astype(np.float32), labels


@pytest.mark.parametrize("batch_size", [2, 6])
def test_examples_by_hand_in_any_batches(batch_size):
    made = fitted(X, Y, batch_size=batch_size)
    means, counts, covariance = state(made)
    np.testing.assert_allclose(covariance, COVARIANCE, rtol=1e-9)
    np.testing.assert_allclose(means, MEANS, rtol=1e-12)
    assert counts.tolist() == [2, 3, 1]
    np.testing.assert_allclose(made.predict(X[:2], verbose=0), SCORES, rtol=1e-6)


def test_steps_solve_for_weights_ever_less_often_and_predictions_take_those_of_now(monkeypatch):
    """Of one example each, in two tasks of 64 and 6."""
    inputs, labels = many(70)
    made, solved = learner(5, 4), []
    solve = nccl_tf.SLDA._solve
    monkeypatch.setattr(nccl_tf.SLDA, "_solve", lambda self: solved.append(0) or solve(self))
    made.fit(inputs[:64], labels[:64], batch_size=1, shuffle=False, end_task=False, verbose=0)
    # Before the examples 0, 1, 3, 7, 15, 31 and 63.
    assert len(solved) == 7

    def expected(count):
        seen = fitted(inputs[:count], labels[:count], batch_size=count)
        means, counts, covariance = state(seen)
        assert counts.sum() == count
        precision = np.linalg.inv((1 - 1e-4) * covariance + 1e-4 * np.eye(5))
        return inputs @ precision @ means.T - 0.5 * np.einsum(
            "cd,de,ce->c", means, precision, means
        )

    np.testing.assert_allclose(made.predict(inputs, verbose=0), expected(64), rtol=1e-4, atol=1e-4)
    served = made.serving_model()
    np.testing.assert_allclose(served(inputs), expected(64), rtol=1e-4, atol=1e-4)
    made.end_task()
    del solved[:]
    made.predict(inputs, verbose=0)
    assert not solved
    made.fit(inputs[64:], labels[64:], batch_size=1, shuffle=False, verbose=0)
    # Anew from the end of the task on: before the examples 65 and 67, and at the next end.
    assert len(solved) == 3
    np.testing.assert_allclose(made.predict(inputs, verbose=0), expected(70), rtol=1e-4, atol=1e-4)


def test_the_covariance_is_that_of_the_authors_loop_in_batches_of_other_sizes():
    inputs, labels = many()
    means, counts, covariance = np.zeros((4, 5)), np.zeros(4), np.zeros((5, 5))
    for t, (z, y) in enumerate(zip(inputs.astype(np.float64), labels, strict=True)):
        move = z - means[y]
        covariance = (t * covariance + np.outer(move, move) * t / (t + 1)) / (t + 1)
        counts[y] += 1
        means[y] += move / counts[y]
    for batch_size in (7, 60):
        found = state(fitted(inputs, labels, batch_size=batch_size))
        for one, other in zip(found, (means, counts, covariance), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_a_shrinkage_of_one_is_the_nearest_class_mean():
    inputs, labels = many()
    made = fitted(inputs, labels, batch_size=30, shrinkage=1.0)
    distances = np.square(inputs[:, None] - made.means.numpy()).sum(-1)
    scores = made.predict(inputs, verbose=0)
    half_norms = np.square(inputs).sum(1, keepdims=True) / 2
    np.testing.assert_allclose(scores, half_norms - distances / 2, atol=1e-4)


def test_features_without_spread_and_of_large_size_have_scores():
    """The covariance of two equal features of size 1e3 has an eigenvalue of 0."""
    inputs, labels = many()
    inputs = 1e3 * inputs[:, [0, 0, 1]]
    assert np.isfinite(fitted(inputs, labels, batch_size=30).predict(inputs, verbose=0)).all()


def test_padding_and_what_is_not_finite_change_nothing():
    made = fitted(X, Y)
    before = state(made)
    padding = (X, Y, np.zeros(6, np.float32))
    made.fit(tf.data.Dataset.from_tensors(padding), verbose=0)
    made.begin_task(2)  # a fit that began it would fail, where it learns nothing
    bad = np.where(np.arange(12).reshape(6, 2) == 3, np.nan, X)
    made.fit(tf.data.Dataset.from_tensors((bad.astype(np.float32), Y)), verbose=0)
    assert int(made.progress.skipped.numpy()) == 1
    for one, other in zip(before, state(made), strict=True):
        np.testing.assert_array_equal(one, other)
    for weights in ([1, 1, 1, 0, 0, 0], [1, 0, 0, 1, 0, 1]):  # padding at the end, and between
        part, kept = learner(), np.array(weights) > 0
        data = (X, Y, np.array(weights, np.float32))
        part.fit(tf.data.Dataset.from_tensors(data), verbose=0)
        for one, other in zip(state(part), state(fitted(X[kept], Y[kept])), strict=True):
            np.testing.assert_allclose(one, padded(other, one), rtol=1e-12)


def padded(value, like):
    """Zeros for the classes that a smaller head has not."""
    return np.pad(value, [(0, a - b) for a, b in zip(like.shape, value.shape, strict=True)])


def test_the_network_stays_as_it_is():
    network = tiny_network()
    before = network.get_weights()
    made = nccl_tf.SLDA(network, heads=TASK_CLASSES)
    made.compile(keras.optimizers.SGD(0.5, momentum=0.9), run_eagerly=True)
    made.fit(tiny_batches(0, 10), verbose=0)
    for one, other in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert made.counts.numpy()[2:].tolist() == [0, 0]


def test_a_network_without_features_is_refused():
    inputs = keras.Input(IMAGE_SHAPE)
    network = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(inputs))
    with pytest.raises(nccl_tf.UserError, match="ends in GlobalAveragePooling2D"):
        nccl_tf.SLDA(network)
