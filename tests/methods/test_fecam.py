"""FeCAM against NumPy's covariances and inverses, and where these do not exist."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.methods.fecam import FARTHEST, whitener
from tests.methods.test_slda import many


def learner(width, classes, run_eagerly=True, **kwargs):
    network = keras.Sequential([keras.Input((width,)), keras.layers.Dense(classes)])
    made = nccl_tf.FeCAM(network, **kwargs)
    made.compile(keras.optimizers.SGD(0.1), run_eagerly=run_eagerly)
    return made


def scores_at_once(inputs, labels, at, *, g1=1.0, g2=0.0, power=1.0, shared=False):
    """The scores of examples `at`, by the definition alone."""

    def normed(x):
        x = np.sign(x) * np.abs(x.astype(np.float64)) ** power
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    z, at = normed(inputs), normed(at)
    classes = np.unique(labels)
    each = [np.cov(z[labels == k].T) for k in classes]
    if shared:
        weights = [np.sum(labels == k) - 1 for k in classes]
        each = [np.average(each, axis=0, weights=weights)] * len(classes)
    found = []
    for k, covariance in zip(classes, each, strict=True):
        unit = np.eye(len(covariance))
        mean_variance = np.diagonal(covariance).mean()
        others = covariance[unit == 0].mean()
        shrunk = covariance + g1 * mean_variance * unit + g2 * others * (1 - unit)
        spread = np.sqrt(np.diagonal(shrunk))
        moved = at - z[labels == k].mean(0)
        inverse = np.linalg.inv(shrunk / np.outer(spread, spread))
        found.append(-np.einsum("nd,de,ne->n", moved, inverse, moved))
    return np.stack(found, axis=1)


@pytest.mark.parametrize("batch_size", [1, 7, 60])
def test_scores_are_those_of_all_examples_at_once_in_any_batches_and_tasks(batch_size):
    inputs, labels = many()
    made = learner(5, 4)
    for part in (slice(0, 25), slice(25, 60)):
        made.fit(inputs[part], labels[part], batch_size=batch_size, shuffle=False, verbose=0)
    scores = made.predict(inputs, verbose=0)
    np.testing.assert_allclose(scores, scores_at_once(inputs, labels, inputs), rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"fecam_covariance": "shared"}, {"shared": True}),
        ({"fecam_shrinkage": 0.9, "fecam_off_diagonal": 0.1}, {"g1": 0.9, "g2": 0.1}),
        ({"fecam_power": 0.5}, {"power": 0.5}),
    ],
)
def test_its_numbers_change_the_metric(arguments, numbers):
    inputs, labels = many()
    made = learner(5, 4, **arguments)
    made.fit(inputs, labels, batch_size=9, verbose=0)
    expected = scores_at_once(inputs, labels, inputs, **numbers)
    np.testing.assert_allclose(made.predict(inputs, verbose=0), expected, rtol=1e-4)
    served = made.serving_model()
    np.testing.assert_allclose(served(inputs), expected, rtol=1e-4)


def test_with_a_shared_covariance_classes_to_come_are_the_farthest():
    inputs, labels = many()
    made = learner(5, 7, fecam_covariance="shared")
    made.fit(inputs, labels, batch_size=9, verbose=0)
    scores = made.scores(tf.constant(inputs, tf.float64)).numpy()
    expected = scores_at_once(inputs, labels, inputs, shared=True)
    np.testing.assert_allclose(scores[:, :4], expected, rtol=1e-4)
    assert scores[:, 4:].max() < -0.9 * FARTHEST


def test_only_classes_with_new_examples_are_solved_again(monkeypatch):
    inputs, labels = many()
    made, solved = learner(5, 4), []
    monkeypatch.setattr(
        "nccl_tf.methods.fecam.whitener", lambda *a: solved.append(0) or whitener(*a)
    )
    parts = [labels < 2, labels == 2, labels != 0]
    for part, classes in zip(parts, (2, 1, 3), strict=True):
        made.fit(inputs[part], labels[part], batch_size=9, verbose=0)
        assert len(solved) == classes
        made.solve()
        assert len(solved) == classes
        del solved[:]
    again = np.concatenate([np.flatnonzero(part) for part in parts])
    expected = scores_at_once(inputs[again], labels[again], inputs)
    np.testing.assert_allclose(made.predict(inputs, verbose=0), expected, rtol=1e-4)


def test_a_singular_covariance_has_a_pseudo_inverse():
    rng = np.random.default_rng(0)
    covariance = np.cov(rng.normal(size=(6, 3)))  # Six features of rank two.
    factor = whitener(covariance, 0.0, 0.0)
    spread = np.sqrt(np.diagonal(covariance))
    expected = np.linalg.pinv(covariance / np.outer(spread, spread), rcond=1e-10)
    np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-8)


def test_one_example_of_a_class_and_features_of_zero_are_finite():
    made = learner(3, 3, fecam_shrinkage=0.0)
    inputs = np.float32([[1, 2, 3], [0, 0, 0], [3, 0, 0]])
    made.fit(inputs, np.arange(3), batch_size=1, verbose=0)
    scores = made.predict(inputs, verbose=0)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(scores.argmax(1), [0, 1, 2])


def test_a_class_is_farthest_until_its_task_ends_and_solve_takes_it():
    inputs, labels = many()
    old = labels < 2
    made = learner(5, 4)
    made.fit(inputs[old], labels[old], verbose=0)
    made.fit(inputs[~old], labels[~old], end_task=False, verbose=0)
    before = made.predict(inputs, verbose=0)
    assert before.argmax(1).max() == 1 and before.min() >= -FARTHEST
    made.solve()
    assert made.predict(inputs, verbose=0).argmax(1).max() == 3


def test_in_the_loss_of_a_step_a_class_to_come_is_as_far_as_the_farthest():
    inputs, labels = many()
    made = learner(5, 4)
    for k in range(2):
        loss = made.fit(inputs[labels == k], labels[labels == k], verbose=0).history["loss"][0]
        np.testing.assert_allclose(loss, np.log(4), rtol=1e-5)  # All are as far.
    new = labels == 2
    scores = made.predict(inputs[new], verbose=0)[:, :2]
    lowest = scores.min(axis=1)
    logits = np.stack([*scores.T, lowest, lowest], axis=1)
    expected = np.mean(np.log(np.exp(logits).sum(axis=1)) - lowest)
    loss = made.fit(inputs[new], labels[new], verbose=0).history["loss"][0]
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("numbers", "width", "said"),
    [
        ({"fecam_shrinkage": 0.0}, 5, "that of class 1 is of 3 degrees of freedom in 5 features"),
        ({"fecam_shrinkage": 0.0, "fecam_covariance": "shared"}, 40, "the shared covariance"),
        ({"fecam_shrinkage": 0.0, "fecam_covariance": "shared"}, 5, None),
        ({}, 5, None),
    ],
)
def test_a_metric_of_fewer_examples_than_features_is_told_of_once(numbers, width, said, caplog):
    rng, labels = np.random.default_rng(0), np.repeat([0, 1], [20, 4])
    inputs = rng.normal(size=(24, width)).astype(np.float32)
    made = learner(width, 2, **numbers)
    for _ in range(2):
        made.fit(inputs, labels, verbose=0)
        labels, inputs = labels[:20], inputs[:20]
    assert caplog.text.count("degrees of freedom") == (said is not None)
    assert said is None or said in caplog.text
