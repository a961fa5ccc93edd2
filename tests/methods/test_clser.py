"""CLS-ER against a step worked out by hand, its limits, and what evaluates."""

import itertools

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import Batch
from tests.methods.learners import assert_same_values, build, fit, make
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

# A linear network of two inputs and three classes, in float64.
KERNEL, BIAS = np.array([[0.5, -0.25, 0], [-0.5, 0.25, 1]]), np.array([0.1, 0, -0.1])
PLASTIC = np.add(KERNEL, [[0.3, 0, 0], [0, -0.2, 0.1]])
STABLE = np.add(KERNEL, [[0, 0.2, -0.1], [0.1, 0, -0.4]])
STREAM = np.array([[1, 0], [0.5, 1]]), np.array([1, 2], np.int64)
MEMORY = np.array([[0, 1], [-1, 0.5]]), np.array([0, 1], np.int64)
RATE, UPDATES = 0.1, 7
NETWORK_AFTER = [
    [[0.4898527684, -0.2477481699, 0.0096454015], [-0.4857594681, 0.2433733555, 0.9900111126]],
    [0.0986155852, 0.0198265846, -0.1216921698],
]
PLASTIC_AFTER = [
    [[0.7655391965, -0.2497497967, 0.0010717113], [-0.4984177187, 0.0714859284, 1.0877790125]],
    [0.0998461761, 0.0022029538, -0.1024102411],
]
STABLE_AFTER = [
    [[0.4988725298, -0.0719720189, -0.0878171776], [-0.4095288298, 0.2492637062, 0.6433345681]],
    [0.0998461761, 0.0022029538, -0.1024102411],
]


class Rows(nccl_tf.ReservoirMemory):
    """Always reads the same two examples."""

    def read(self, count):
        inputs, labels = map(tf.constant, MEMORY)
        return Batch(inputs, labels, tf.zeros(2, tf.int64), tf.ones(2))

    def readable_count(self):
        return tf.constant(2)


def values(copies) -> list[np.ndarray]:
    return [copy.numpy() for copy in copies]


def test_a_step_by_hand():
    """The first example is held to the stable network's logits, the second to the plastic one's."""
    network = keras.Sequential(
        [keras.Input((2,), dtype="float64"), keras.layers.Dense(3, dtype="float64")]
    )
    network.set_weights([KERNEL, BIAS])
    learner = nccl_tf.CLSER(
        network, Rows(4, (2,), "float64"), memory_batch_size=2, clser_weight=0.15,
        plastic_decay=0.99, stable_rate=1.0, plastic_rate=1.0,
    )  # fmt: skip
    for average, kernel in ((learner.plastic, PLASTIC), (learner.stable, STABLE)):
        for copy, value in zip(average.variables, (kernel, BIAS), strict=True):
            copy.assign(value)
    learner.updates.assign(UPDATES)
    learner.compile(keras.optimizers.SGD(RATE), run_eagerly=True)
    logs = learner.fit(tf.data.Dataset.from_tensors(STREAM), verbose=0).history
    np.testing.assert_allclose(logs["consistency"], [0.0454166667], rtol=1e-6)
    found = (
        network.get_weights(),
        values(learner.plastic.variables),
        values(learner.stable.variables),
    )
    for one, other in zip(found, (NETWORK_AFTER, PLASTIC_AFTER, STABLE_AFTER), strict=True):
        for left, right in zip(one, other, strict=True):
            # The rate is a float32.
            np.testing.assert_allclose(left, right, atol=1e-8)


def test_each_average_moves_at_its_rate():
    """Where the network moves, an average moves with its own probability: 40 steps, seen singly."""
    options = {"stable_rate": 0.3, "plastic_rate": 1.0}
    learner, seen = make("clser", options=options, steps_per_execution=1), []

    def look(*_, **__):
        seen.append([values(a.variables)[0] for a in (learner.stable, learner.plastic)])

    look()
    fit(learner, 0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=look)])
    moved = np.array(
        [[(a != b).any() for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(seen)]
    ).sum(0)
    assert moved[1] == 40 and 4 <= moved[0] <= 20


def test_the_stable_network_evaluates():
    learner = make("clser", run_eagerly=True)
    fit(learner, 0, count=50)
    inputs = next(iter(tiny_batches(0)))[0]["inputs"]
    by_network = learner.network(inputs).numpy()
    found = learner.predict(inputs, verbose=0)
    trained = learner.network.get_weights()
    learner.network.set_weights(values(learner.stable.variables))
    np.testing.assert_allclose(found[:, :2], learner.network(inputs)[:, :2], rtol=1e-6)
    assert np.abs(found - by_network)[:, :2].max() > 1e-3
    learner.network.set_weights(trained)


def test_a_network_that_gets_its_weights_after_it_is_built_is_averaged_from_these():
    learner = build("clser")
    weights = tiny_network(seed=7).get_weights()
    learner.network.set_weights(weights)
    learner.begin_task(0)
    assert_same_values(values(learner.stable.variables), weights)
    learner.updates.assign(1)
    learner.network.set_weights(tiny_network(seed=8).get_weights())
    learner.end_task()
    learner.begin_task(1)
    assert_same_values(values(learner.stable.variables), weights)


def test_a_skipped_step_moves_nothing():
    learner = make("clser", run_eagerly=True)
    fit(learner, 0, count=10, end_task=False)
    before = (
        values(learner.stable.variables),
        values(learner.plastic.variables),
        int(learner.updates),
    )
    (batch, labels, _), *_ = tiny_batches(0)
    weights = np.full(len(labels), 3e38, np.float32)  # Their sum is infinite.
    learner.fit(tf.data.Dataset.from_tensors((batch, labels, weights)), verbose=0)
    assert int(learner.progress.skipped.numpy()) == 1
    assert_same_values(before[0], values(learner.stable.variables))
    assert_same_values(before[1], values(learner.plastic.variables))
    assert int(learner.updates) == before[2]


def normalised_network() -> keras.Model:
    network = keras.Sequential([
        keras.Input(IMAGE_SHAPE), keras.layers.Flatten(), keras.layers.Dense(8),
        keras.layers.BatchNormalization(momentum=0.5), keras.layers.ReLU(), keras.layers.Dense(4),
    ])  # fmt: skip
    return network


def test_averages_have_moving_statistics_of_their_own():
    memory = nccl_tf.ReservoirMemory(12, IMAGE_SHAPE, seed=1)
    learner = nccl_tf.CLSER(normalised_network(), memory, heads=TASK_CLASSES, memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    fit(learner, 0, count=20)
    layer = learner.network.layers[2]
    index = [v is layer.moving_mean for v in learner.network.variables].index(True)
    means = [a.variables[index].numpy() for a in (learner.stable, learner.plastic)]
    for one in means:
        assert (one != 0).any() and (one != layer.moving_mean.numpy()).any()
    assert (means[0] != means[1]).any()
