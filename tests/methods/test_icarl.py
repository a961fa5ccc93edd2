"""iCaRL: herding, the nearest mean, distillation, a step against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.errors import UserError
from nccl_tf.memories.exemplars import ExemplarMemory
from nccl_tf.methods.icarl import ICaRL, herd
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, network, one_step
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

pytestmark = pytest.mark.eager

BEFORE = np.random.default_rng(6).normal(size=WEIGHTS.shape)


def unit_rows(count, seed):
    rows = np.random.default_rng(seed).normal(size=(count, 3))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def herd_by_hand(features, count):
    chosen = []
    for j in range(1, count + 1):
        left = [i for i in range(len(features)) if i not in chosen]
        means = [(features[[*chosen, i]]).sum(axis=0) / j for i in left]
        chosen.append(left[int(np.argmin([np.sum((features.mean(0) - m) ** 2) for m in means]))])
    return chosen


@given(st.integers(1, 9), st.integers(0, 99))
@settings(deadline=None)
def test_herding_takes_the_nearest_running_mean(count, seed):
    """A prefix of the choice is the choice of fewer."""
    features = unit_rows(9, seed)
    chosen = herd(features, count).tolist()
    assert chosen == herd_by_hand(features, count)
    distances = np.linalg.norm(features - features.mean(axis=0), axis=1)
    assert chosen[0] == np.argmin(distances)
    assert chosen == herd(features, 9).tolist()[:count]


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def gradient(images, targets, counted, weights=WEIGHTS):
    """Of the sum over examples and counted classes of the binary cross-entropy."""
    flat = images.reshape(len(targets), 4)
    return flat.T @ ((sigmoid(flat @ weights) - targets) * counted)


def hand_learner(**kwargs):
    memory = ExemplarMemory(6, (2, 2, 1), example_dtype="float64")
    return ICaRL(network(), memory, memory_batch_size=3, herding_pool=2, **kwargs)


def test_a_first_step_by_hand():
    expected = WEIGHTS - ALPHA * gradient(STREAM[0], np.eye(3)[STREAM[1]], 1) / 2
    np.testing.assert_allclose(one_step(hand_learner()), expected, rtol=1e-12)


@pytest.mark.parametrize("heads", [None, ((2,), (0, 1, 2))])
def test_a_step_by_hand_with_exemplars_and_an_old_class(heads):
    """Class 2 is old: its targets are what the previous weights put out.

    Single head. With two heads the labels of task 0, class 2 alone, count for nothing else.
    """
    model = hand_learner(heads=heads)
    model.memory.replace_contents({2: (MEMORY[0], 0)})
    model.previous.variables[0].assign(BEFORE)
    model.old_classes.assign([False, False, True])
    model.begin_task(1)
    total = 0
    for images, labels, task in ((MEMORY[0], np.array([2, 2, 2]), 0), (*STREAM, 1)):
        targets = np.eye(3)[labels]
        targets[:, 2] = sigmoid(images.reshape(-1, 4) @ BEFORE)[:, 2]
        counted = np.array([0, 0, 1]) if heads and task == 0 else 1
        total = total + gradient(images, targets, counted)
    model.on_task_end = lambda task_id: None
    np.testing.assert_allclose(one_step(model), WEIGHTS - ALPHA * total / 5, rtol=1e-12)


def fitted(tasks=(0, 1), capacity=6, heads=None, count=60, **kwargs):
    memory = ExemplarMemory(capacity, IMAGE_SHAPE, **kwargs)
    model = ICaRL(tiny_network(), memory, heads=heads, memory_batch_size=4)
    model.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"], run_eagerly=True)
    for task in tasks:
        model.fit(tiny_batches(task, count), verbose=0)
    return model


def images_of(task, count=40):
    inputs, labels, _ = next(iter(tiny_batches(task, count, batch_size=count, seed=9)))
    return inputs["inputs"], labels.numpy()


def unit_features(model, images):
    hidden = keras.Sequential(model.network.layers[:-1])(images).numpy()
    return hidden / np.linalg.norm(hidden, axis=1, keepdims=True)


def test_it_predicts_the_nearest_mean_of_exemplars():
    model = fitted(heads=TASK_CLASSES)
    means = {}
    for label, (exemplars, _) in model.memory.contents().items():
        mean = unit_features(model, exemplars).mean(axis=0)
        means[label] = mean / np.linalg.norm(mean)
    images, labels = images_of(1)
    candidates = [c for c in sorted(means) if c in TASK_CLASSES[1]]
    features = unit_features(model, images)
    distances = [np.linalg.norm(features - means[c], axis=1) for c in candidates]
    expected = np.array(candidates)[np.argmin(distances, axis=0)]
    predicted = model({"inputs": images, "task": tf.ones(40, tf.int64)}).numpy().argmax(axis=1)
    np.testing.assert_array_equal(predicted, expected)
    assert np.mean(predicted == labels) > 0.8


def test_lists_are_cut_to_a_prefix_when_classes_come():
    model = fitted(tasks=(0,), count=20)
    before = model.memory.contents()
    model.fit(tiny_batches(1, 20), verbose=0)
    after = model.memory.contents()
    # Six slots: three for each of two classes, then one for each of four.
    assert [len(images) for images, _ in before.values()] == [3, 3]
    assert {c: (len(images), task) for c, (images, task) in after.items()} == {
        0: (1, 0), 1: (1, 0), 2: (1, 1), 3: (1, 1),
    }  # fmt: skip
    for label in (0, 1):
        np.testing.assert_array_equal(after[label][0], before[label][0][:1])
    assert int(model.pool.seen.numpy()) == 0


def test_exemplars_are_herded_from_the_task():
    model = fitted(tasks=(0,), capacity=400, per_class=4)
    inputs, labels, _ = next(iter(tiny_batches(0, 60, batch_size=60)))
    own = inputs["inputs"].numpy()[labels.numpy() == 1]
    chosen = own[herd_by_hand(unit_features(model, own), 4)]
    np.testing.assert_array_equal(model.memory.contents()[1][0], chosen)


def test_before_the_first_task_ends_the_logits_decide():
    model = fitted(tasks=())
    model.fit(tiny_batches(0), verbose=0, end_task=False)
    images, labels = images_of(0)
    predicted = model(images).numpy().argmax(axis=1)
    logits = model.network(images).numpy()
    np.testing.assert_array_equal(predicted, logits[:, :2].argmax(axis=1))
    assert np.mean(predicted == labels) > 0.8


def test_a_network_without_a_dense_layer_is_refused():
    inputs = keras.Input(IMAGE_SHAPE)
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3)(inputs))
    with pytest.raises(UserError, match="no dense layer"):
        ICaRL(keras.Model(inputs, pooled), ExemplarMemory(6, IMAGE_SHAPE))
