"""The weights of examples: a step takes means by them, and 0 marks padding."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from tests.methods.learners import make
from tests.methods.test_battery import CLASSES
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

OF_THEIR_OWN = {"er_ring", "icarl"}  # which join both batches in one mean, as clser and lpr do
SLOW = [
    name if name in OF_THEIR_OWN else pytest.param(name, marks=pytest.mark.nightly)
    for name in CLASSES
]


def learned(name, weight):
    """What two tasks leave of a network whose examples all have one weight."""
    learner = make(name, run_eagerly=True)
    for task in range(2):
        data = tiny_batches(task, 10).map(lambda x, y, w: (x, y, weight * w))
        learner.fit(data, task_id=task, verbose=0)
    return learner.network.get_weights()


@pytest.mark.parametrize("name", SLOW)
def test_only_ratios_count(name):
    # By a power of two nothing is rounded.
    for one, other in zip(learned(name, 1.0), learned(name, 4.0), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", ["arrays", "dataset", "evaluated"])
@pytest.mark.parametrize("bad", [np.inf, np.nan, -1.0, 1e300])
def test_a_weight_that_is_no_finite_number_of_0_or_more_is_named(bad, form):
    """1e300 is infinite as the float32 that a step takes, which a dataset has already."""
    x, y, weights = np.eye(4, 6, dtype=np.float32), np.arange(4) % 2, np.ones(4)
    weights[2] = bad
    net = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    learner, before = nccl_tf.Finetune(net), net.get_weights()
    learner.compile("sgd")
    with np.errstate(over="ignore"):
        data = tf.data.Dataset.from_tensor_slices((x, y, weights.astype("float32"))).batch(4)
    with pytest.raises(UserError, match=f"the weight {'inf|1e' if bad > 0 else bad}"):
        if form == "arrays":
            learner.fit(x, y, sample_weight=weights, verbose=0)
        elif form == "dataset":
            learner.fit(data, verbose=0)
        else:
            learner.evaluate(data, verbose=0)
    for one, other in zip(before, net.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.nightly
def test_only_ratios_count_in_sums_too():
    name = "bgd"
    for one, other in zip(learned(name, 1.0), learned(name, 4.0), strict=True):
        np.testing.assert_array_equal(one, other)


def test_squares_of_gradients_are_weighed_once():
    """Two examples that weigh 3 and 1 are four, of which three are alike."""

    def squares(rows, weights):
        learner = make("ewc", run_eagerly=True)
        x, y, _ = next(iter(tiny_batches(0, 2, 2)))
        images, labels = (part.numpy()[rows] for part in (x["inputs"], y))
        data = (images, labels, np.array(weights, np.float32))
        learner.fit(*data[:2], sample_weight=data[2], batch_size=4, verbose=0, end_task=False)
        return [v.numpy() for v in learner.window_sums]

    for one, other in zip(squares([0, 1], [3, 1]), squares([0, 0, 0, 1], [1] * 4), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-9)


def finetune(loss=None):
    learner = nccl_tf.Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1), loss=loss, run_eagerly=True)
    return learner


@pytest.mark.parametrize("label", [-1, 99])
def test_padding_may_have_a_label_of_no_class(label):
    x, y, _ = next(iter(tiny_batches(0, 4, 4)))
    images, labels = x["inputs"].numpy(), y.numpy()
    bare, padded = finetune(), finetune()
    bare.fit(images[:3], labels[:3], verbose=0)
    weights = np.array([1, 1, 1, 0], np.float32)
    labels[3] = label
    padded.fit(images, labels, sample_weight=weights, verbose=0)
    for one, other in zip(bare.get_weights(), padded.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


def test_an_ignored_class_is_not_in_the_mean_nor_kept():
    x, y, _ = next(iter(tiny_batches(1, 4, 4)))
    images, labels = x["inputs"].numpy(), y.numpy()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    ring = nccl_tf.RingMemory(4, TASK_CLASSES, IMAGE_SHAPE)
    learner = nccl_tf.NCCL(tiny_network(), ring)
    learner.compile(keras.optimizers.SGD(0.1), loss=loss, run_eagerly=True)
    labels[3] = -1
    expected = float(loss(labels, learner.network(images)))
    logs = learner.fit(images, labels, task_id=1, batch_size=4, verbose=0).history
    assert logs["loss"][0] == pytest.approx(expected, rel=1e-5)
    assert int(learner.memory.counts.numpy()[:-1].sum()) == 3
