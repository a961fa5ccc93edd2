"""SI: two tasks of two steps in NumPy, and the method's limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.methods.si import SI
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, gradient, network
from tests.methods.learners import assert_same_values
from tests.tiny import tiny_batches, tiny_network

C, XI = 0.5, 0.125


def steps(*batches):
    """Batches of other images in one epoch of two steps."""
    images, labels = zip(*batches, strict=True)
    columns = np.stack(images), np.stack(labels).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(columns)


ONE = STREAM
TWO = MEMORY[0][:2], MEMORY[1][:2]


def learner_of(optimizer=None, in_graph=False, **arguments):
    learner = SI(network(), **{"si_c": C, "si_xi": XI, **arguments})
    learner.compile(optimizer or keras.optimizers.SGD(ALPHA), run_eagerly=not in_graph)
    return learner


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_two_tasks_of_two_steps(momentum):
    """Omega from the gradients without the penalty and the movements with it, momentum too."""
    learner = learner_of(keras.optimizers.SGD(ALPHA, momentum=momentum), in_graph=True)
    x, anchor, velocity = WEIGHTS, WEIGHTS, np.zeros(WEIGHTS.shape)
    importance = np.zeros(WEIGHTS.shape)
    for batches in ((ONE, TWO), (TWO, ONE)):
        contribution = np.zeros(WEIGHTS.shape)
        for batch in batches:
            g = gradient(*batch, x)
            penalty = C * np.sum(importance * (x - anchor) ** 2)
            velocity = momentum * velocity - ALPHA * (g + 2 * C * importance * (x - anchor))
            x = x + velocity
            contribution -= g * velocity
        history = learner.fit(steps(*batches), verbose=0).history
        importance = np.maximum(0, importance + contribution / ((x - anchor) ** 2 + XI))
        anchor = x
        np.testing.assert_allclose(learner.network.get_weights()[0], x, rtol=1e-10)
        np.testing.assert_allclose(learner.importances[0].numpy(), importance, rtol=1e-9)
        np.testing.assert_array_equal(learner.anchors[0].numpy(), learner.network.get_weights()[0])
        np.testing.assert_array_equal(learner.contributions[0].numpy(), 0)
    assert penalty > 0
    np.testing.assert_allclose(history["penalty"][0], penalty / 2, rtol=1e-5)  # mean of two steps


def test_a_negative_contribution_lowers_the_sum_down_to_zero():
    learner = learner_of()
    learner.begin_task(0)
    first = np.arange(12.0).reshape(4, 3)
    for contribution, expected in ((first, first), (-0.5 * first, 0.5 * first), (-first, 0)):
        learner.begin_task(0)
        learner.contributions[0].assign(XI * contribution)
        learner.end_task()
        np.testing.assert_allclose(learner.importances[0].numpy(), expected, rtol=1e-12)


def test_contributions_sum_to_the_fall_of_the_loss():
    """To first order in the rate; under plain SGD each is the rate times the squared gradient."""
    rate = 2.0**-20
    learner = learner_of(keras.optimizers.SGD(rate))
    learner.fit(steps(ONE), end_task=False, verbose=0)
    contribution, after = learner.contributions[0].numpy(), learner.network.get_weights()[0]
    np.testing.assert_allclose(contribution, rate * gradient(*ONE) ** 2, rtol=1e-6)

    def loss(weights):
        logits = ONE[0].reshape(2, 4) @ weights
        return np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(2), ONE[1]])

    np.testing.assert_allclose(contribution.sum(), loss(WEIGHTS) - loss(after), rtol=1e-5)


def test_a_skipped_step_adds_nothing():
    learner = learner_of()
    bad = np.full(ONE[0].shape, np.nan)
    learner.fit(steps(ONE, (bad, ONE[1])), end_task=False, verbose=0)
    other = learner_of()
    other.fit(steps(ONE), end_task=False, verbose=0)
    assert int(learner.progress.skipped.numpy()) == 1
    for states in ("contributions", "importances", "anchors"):
        assert_same_values(
            *([v.numpy() for v in getattr(each, states)] for each in (learner, other))
        )


def test_new_classes_start_at_their_own_anchor():
    learner = SI(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tiny_batches(0, 10), verbose=0)
    learner.add_classes(2)
    kernel = learner.network.layers[-1].kernel.numpy()
    np.testing.assert_array_equal(learner.anchors[-2].numpy(), kernel)
    assert (learner.importances[-2].numpy()[:, 4:] == 0).all() and kernel[:, 4:].any()
