"""`evaluate` and validation refuse labels that no head has, however they are delivered."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from tests.tiny import TASK_CLASSES, tiny_network

X = np.random.default_rng(0).integers(0, 255, (6, 4, 4, 1), np.uint8)
Y = np.array([0, 1, 0, 1, 0, 1])


FORMS = {
    "dataset": lambda *arrays: tf.data.Dataset.from_tensor_slices(arrays).batch(4),
}


@pytest.fixture(scope="module")
def single():
    learner = nccl_tf.Finetune(tiny_network())
    learner.compile("sgd")
    return learner


@pytest.fixture(scope="module")
def multi():
    learner = nccl_tf.Finetune(tiny_network(), heads=TASK_CLASSES)
    learner.compile("sgd")
    return learner


@pytest.mark.parametrize("form", FORMS)
def test_labels_outside_of_the_head_are_refused(single, multi, form):
    ones = np.ones(len(Y), np.float32)
    far = np.where(np.arange(len(Y)) == 5, 2**32, Y)
    for labels, wrong in ((Y - 1, -1), (Y + 4, "[45]"), (far, 2**32)):
        with pytest.raises(UserError, match=f"received the label {wrong}"):
            single.evaluate(FORMS[form](X, labels, ones), verbose=0)
    with pytest.raises(UserError, match=r"received the label 0 in task 1, whose .* \[2, 3\]"):
        multi.evaluate(FORMS[form](X, Y, ones), task_id=1, verbose=0)
    named = {"inputs": X, "task": np.full(len(Y), 7, np.int32)}
    with pytest.raises(UserError, match="received task 7, but"):
        multi.evaluate(FORMS[form](named, Y, ones), verbose=0)
    # What was refused is forgotten, and padding may have any label.
    padded = FORMS[form](X, np.append(Y[:5], -1), np.array([1, 1, 1, 1, 1, 0], np.float32))
    expected = single.evaluate(X[:5], Y[:5], verbose=0)
    assert single.evaluate(padded, verbose=0) == pytest.approx(expected)


def test_one_hot_rows_outside_of_the_head_are_refused():
    learner = nccl_tf.Finetune(tiny_network(), heads=TASK_CLASSES)
    learner.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    rows = np.eye(4, dtype=np.float32)[Y]
    with pytest.raises(UserError, match="received the label 0 in task 1"):
        learner.evaluate(FORMS["dataset"](X, rows), task_id=1, verbose=0)
    with pytest.raises((UserError, tf.errors.InvalidArgumentError)):
        learner.evaluate(tf.data.Dataset.from_tensors((X, rows[:, :3])), task_id=0, verbose=0)


def test_a_task_is_validation_data():
    stream = nccl_tf.load_stream("split_digits", max_tasks=2)
    network = nccl_tf.networks.mlp(stream.example_shape, 10, pixels=stream.pixels)
    learner = nccl_tf.Finetune(network, heads=stream.heads)
    learner.compile("sgd", metrics=["accuracy"])
    logs = learner.fit(stream[0], validation_data=stream[0], verbose=0).history
    loss, accuracy = learner.evaluate(stream[0], verbose=0)
    assert (logs["val_loss"], logs["val_accuracy"]) == ([loss], [accuracy])
