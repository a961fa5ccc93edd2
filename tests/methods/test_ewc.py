"""EWC: one step in NumPy, the running Fisher information by hand, and the method's limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.methods.ewc import EWC, normalized
from tests.methods.hand import ALPHA, STREAM, WEIGHTS, gradient, network, stream
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network


def steps(images, labels, count):
    """`count` steps of SGD: the weights before each of them and at the end, and the gradients."""
    weights, gradients = [WEIGHTS], []
    for _ in range(count):
        gradients.append(gradient(images, labels, weights[-1]))
        weights.append(weights[-1] - ALPHA * gradients[-1])
    return weights, gradients


def scaled(fisher):
    return (fisher - fisher.min()) / (fisher.max() - fisher.min())


def one_batch(images, labels, count):
    batch = tf.data.Dataset.from_tensors((images, labels.astype(np.int32)))
    return batch.repeat(count)


def test_a_step_after_a_task_of_five_steps():
    """Windows of two: the squares of step 1 alone, then those of 2 and 3; 4 and 5 are dropped."""
    learner = EWC(network(), ewc_lambda=1.5, ewc_window=2)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    learner.fit(one_batch(*STREAM, 5), verbose=0)
    weights, g = steps(*STREAM, 5)
    running = 0.9 * g[0] ** 2 / 2
    running = 0.1 * running + 0.9 * (g[1] ** 2 + g[2] ** 2) / 2
    np.testing.assert_allclose(learner.running[0].numpy(), running, rtol=1e-10)
    fisher, anchor = scaled(running), weights[-1]
    x = WEIGHTS + 0.1
    learner.network.set_weights([x])
    history = learner.fit(stream(), verbose=0).history
    pull = 2 * 1.5 * fisher * (x - anchor)
    expected = x - ALPHA * (gradient(*STREAM, x) + pull)
    np.testing.assert_allclose(learner.network.get_weights()[0], expected, rtol=1e-10)
    penalty = 1.5 * np.sum(fisher * (x - anchor) ** 2)
    np.testing.assert_allclose(history["penalty"][0], penalty, rtol=1e-5)


def train(learner):
    learner.compile(keras.optimizers.SGD(0.1))
    for task in (0, 1):
        logs = learner.fit(tiny_batches(task), verbose=0).history
        yield learner, logs


@pytest.fixture(scope="module")
def tuned():
    """The weights of fine-tuning after each task."""
    learner = nccl_tf.Finetune(tiny_network(), heads=TASK_CLASSES)
    return [learner.network.get_weights() for learner, _ in train(learner)]


def test_no_penalty_at_first_and_fisher_within_0_and_1(tuned):
    learner = EWC(tiny_network(), heads=TASK_CLASSES)
    for after, ((_, logs), expected) in enumerate(zip(train(learner), tuned, strict=True)):
        same = all(map(np.array_equal, expected, learner.network.get_weights()))
        assert same == (after == 0)
        assert (logs["penalty"][0] == 0) == (after == 0)
        values = np.concatenate([f.numpy().ravel() for f in learner.importances])
        assert values.min() >= 0 and 0.99 < values.max() <= 1 + 1e-6


def test_fisher_is_normalized_over_all_tensors():
    """It is zero where nothing was measured."""
    first, second = normalized([tf.constant([1.0, 5.0]), tf.constant([[3.0]])])
    np.testing.assert_array_equal(first, [0.0, 1.0])
    np.testing.assert_array_equal(second, [[0.5]])
    np.testing.assert_array_equal(normalized([tf.zeros(2)])[0], [0.0, 0.0])


def test_windows_follow_the_network_unless_given():
    images = keras.Input((4, 4, 1))
    features = keras.layers.Flatten()(keras.layers.Conv2D(2, 3)(images))
    convolutions = keras.Model(images, keras.layers.Dense(3)(features))
    assert EWC(convolutions)._steps_per_window == 50
    assert EWC(tiny_network())._steps_per_window == 10
    assert EWC(tiny_network(), ewc_window=7)._steps_per_window == 7
