"""RanPAC against ridge regressions that are solved at once, and its choice of the ridge."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.methods.ranpac import RIDGES, ridge_weights
from tests.methods.test_slda import many


def learner(width, classes, run_eagerly=True, **kwargs):
    network = keras.Sequential([keras.Input((width,)), keras.layers.Dense(classes)])
    made = nccl_tf.RanPAC(network, **({"projected_features": 20} | kwargs))
    made.compile(keras.optimizers.SGD(0.1), run_eagerly=run_eagerly)
    return made


def fitted(inputs, labels, *, batch_size=7, **kwargs):
    made = learner(inputs.shape[1], int(labels.max()) + 1, **kwargs)
    made.fit(inputs, labels, batch_size=batch_size, shuffle=False, verbose=0)
    return made


def projected(made, inputs):
    return np.maximum(inputs.astype(np.float64) @ made.projection.numpy().astype(np.float64), 0)


def weights_at_once(rows, targets, ridge):
    """(H^T H + ridge I)^-1 H^T Y, by a solve."""
    return np.linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ targets)


def test_one_feature_by_hand():
    """W = 2: h = 2, 4, 0, 6 of the labels 0, 1, 1, 1; G = 56, c = (2, 10), and a ridge of 4."""
    made = learner(1, 2, projected_features=1, ridge=4.0)
    made.projection.assign([[2.0]])
    inputs, labels = np.float32([[1], [2], [-1], [3]]), np.array([0, 1, 1, 1])
    made.fit(inputs, labels, batch_size=2, shuffle=False, verbose=0)
    assert made.gram.numpy().item() == 56
    np.testing.assert_allclose(made.class_weights.numpy(), [[2 / 60], [10 / 60]], rtol=1e-12)
    np.testing.assert_allclose(made.predict(inputs[:1], verbose=0), [[4 / 60, 20 / 60]], rtol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 7, 60])
def test_weights_are_those_of_all_examples_at_once_in_any_batches_and_tasks(batch_size):
    inputs, labels = many()
    made = learner(5, 4, ridge=0.5)
    for part in (slice(0, 25), slice(25, 60)):
        made.fit(inputs[part], labels[part], batch_size=batch_size, shuffle=False, verbose=0)
    rows = projected(made, inputs)
    expected = weights_at_once(rows, np.eye(4)[labels], 0.5)
    np.testing.assert_allclose(made.class_weights.numpy().T, expected, rtol=1e-8)
    scores = made.predict(inputs, verbose=0)
    np.testing.assert_allclose(scores, rows @ expected, rtol=1e-4, atol=1e-5)


def test_the_ridge_has_the_least_error_on_every_fifth_example():
    inputs, labels = many(200)
    noise = np.random.default_rng(1).normal(size=(200, 5))
    inputs = (0.3 * inputs + noise).astype(np.float32)
    made = fitted(inputs, labels, batch_size=33)
    rows, targets = projected(made, inputs), np.eye(4)[labels]
    held = np.arange(200) % 5 == 4

    def error(ridge):
        weights = weights_at_once(rows[~held], targets[~held], ridge)
        return np.square(rows[held] @ weights - targets[held]).mean()

    best = min(RIDGES, key=error)
    assert float(made.chosen_ridge.numpy()) == best
    assert RIDGES[0] < best < RIDGES[-1]
    expected = weights_at_once(rows, targets, best)
    np.testing.assert_allclose(made.class_weights.numpy().T, expected, rtol=1e-6)


def test_a_gram_matrix_without_a_factor_has_weights():
    """Of size 1e12 along one axis, where rounding is more than the ridge."""
    axis = np.array([3.0, 4.0, 0.0, 0.0]) / 5
    gram, sums = 1e12 * np.outer(axis, axis), np.outer([2.0, -1.0], axis)
    gram[3, 3] = -1e-3
    found = ridge_weights(gram, sums, 1e-8)
    np.testing.assert_allclose(found @ axis, [2e-12, -1e-12], rtol=1e-6)
    regular = np.diag([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(ridge_weights(regular, sums, 1.0), sums / [2, 3, 4, 5], rtol=1e-12)


def test_it_predicts_from_the_end_of_a_task_or_when_it_is_solved():
    inputs, labels = many()
    made = learner(5, 4)
    made.fit(inputs, labels, batch_size=20, end_task=False, verbose=0)
    assert not made.predict(inputs, verbose=0).any()
    made.solve()
    solved = made.class_weights.numpy()
    assert solved.any()
    made.end_task()
    np.testing.assert_array_equal(made.class_weights.numpy(), solved)


def test_the_projection_is_of_the_seed_alone():
    one, same, other = (learner(5, 4, seed=seed).projection.numpy() for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()
    assert abs(one.std() - 1) < 0.2


def test_padding_and_few_examples_change_nothing():
    inputs, labels = many(4)
    made = fitted(inputs, labels)
    assert float(made.chosen_ridge.numpy()) == 1.0  # no fifth example is there to choose it
    before = [variable.numpy() for variable in made.statistics]
    made.fit(tf.data.Dataset.from_tensors((inputs, labels, np.zeros(4, np.float32))), verbose=0)
    for one, other in zip(before, made.statistics, strict=True):
        np.testing.assert_array_equal(one, other.numpy())


def test_padding_between_examples_is_not_among_those_that_every_fifth_is_held_out_of():
    inputs, labels = many(20)
    kept = np.arange(20) % 3 != 1
    made = learner(5, 4)
    data = (inputs, labels, kept.astype(np.float32))
    made.fit(tf.data.Dataset.from_tensor_slices(data).batch(10), verbose=0)
    expected = fitted(inputs[kept], labels[kept])
    for one, other in zip(made.statistics, expected.statistics, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12, atol=1e-12)
