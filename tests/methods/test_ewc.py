"""EWC: one step in NumPy, the running Fisher information by hand, and the method's limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.quadratic_penalty import distance
from nccl_tf.methods.ewc import EWC, merge_penalties, normalized
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


def test_separate_is_the_sum_of_the_penalties_of_all_tasks():
    learner = EWC(network(), ewc="separate", ewc_lambda=0.5, ewc_window=1)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    rng, expected = np.random.default_rng(1), 0.0
    for _ in range(3):
        images, labels = rng.normal(size=(2, 2, 2, 1)), rng.integers(0, 3, 2)
        x = rng.normal(size=WEIGHTS.shape)
        learner.network.set_weights([x])
        learner.fit(one_batch(images, labels, 2), verbose=0)
        fisher = scaled(0.9 * gradient(images, labels, x) ** 2)
        anchor = learner.network.get_weights()[0]
        probe = np.full(WEIGHTS.shape, 0.7)
        expected = expected + fisher * (probe - anchor) ** 2
        learned = distance(
            [tf.constant(probe)], [learner.importances[0].value], [learner.anchors[0].value]
        )
        np.testing.assert_allclose(learned + learner.left_over.value, np.sum(expected), rtol=1e-10)


def test_per_example_squares_the_gradient_of_each_example():
    learner = EWC(network(), ewc="per_example", ewc_window=1)
    learner.compile(keras.optimizers.SGD(ALPHA))
    learner.fit(one_batch(*STREAM, 2), verbose=0)
    images, labels = STREAM
    squares = [gradient(images[i : i + 1], labels[i : i + 1]) ** 2 for i in range(2)]
    np.testing.assert_allclose(
        learner.running[0].numpy(), 0.9 * np.mean(squares, axis=0), rtol=1e-10
    )
    np.testing.assert_allclose(
        learner.network.get_weights()[0], steps(*STREAM, 2)[0][-1], rtol=1e-12
    )


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


@pytest.mark.parametrize("ewc", ["online", "separate", "per_example"])
def test_without_a_penalty_it_is_fine_tuning(ewc, tuned):
    learner = EWC(tiny_network(), heads=TASK_CLASSES, ewc=ewc, ewc_lambda=0.0)
    list(train(learner))
    for one, other in zip(tuned[-1], learner.network.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("ewc", ["online", "separate", "per_example"])
def test_no_penalty_at_first_and_fisher_within_0_and_1(ewc, tuned):
    learner = EWC(tiny_network(), heads=TASK_CLASSES, ewc=ewc)
    for after, ((_, logs), expected) in enumerate(zip(train(learner), tuned, strict=True)):
        same = all(map(np.array_equal, expected, learner.network.get_weights()))
        assert same == (after == 0)
        assert (logs["penalty"][0] == 0) == (after == 0)
        values = np.concatenate([f.numpy().ravel() for f in learner.importances])
        assert values.min() >= 0 and values.max() > 0.99
        assert values.max() <= (after + 1 if ewc == "separate" else 1) * (1 + 1e-6)


def test_fisher_is_normalized_over_all_tensors():
    """It is zero where nothing was measured."""
    first, second = normalized([tf.constant([1.0, 5.0]), tf.constant([[3.0]])])
    np.testing.assert_array_equal(first, [0.0, 1.0])
    np.testing.assert_array_equal(second, [[0.5]])
    np.testing.assert_array_equal(normalized([tf.zeros(2)])[0], [0.0, 0.0])


def test_merged_penalties_are_their_sum():
    rng = np.random.default_rng(0)
    f, a, g, b, x = (tf.constant(rng.random(20)) for _ in range(5))
    both, anchor, left_over = merge_penalties(f, a, g, b)
    total = distance([x], [f], [a]) + distance([x], [g], [b])
    np.testing.assert_allclose(distance([x], [both], [anchor]) + left_over, total, rtol=1e-12)
    np.testing.assert_array_equal(merge_penalties(0 * f, a, 0 * g, b)[1], a)


def test_windows_follow_the_network_unless_given():
    images = keras.Input((4, 4, 1))
    features = keras.layers.Flatten()(keras.layers.Conv2D(2, 3)(images))
    convolutions = keras.Model(images, keras.layers.Dense(3)(features))
    assert EWC(convolutions)._steps_per_window == 50
    assert EWC(tiny_network())._steps_per_window == 10
    assert EWC(tiny_network(), ewc_window=7)._steps_per_window == 7
