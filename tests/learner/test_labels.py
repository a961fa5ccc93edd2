"""Labels that a learner cannot learn are refused, before a step learns from them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.checks import check_labels
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_network

X = np.zeros((6, *IMAGE_SHAPE), np.uint8)
GOOD = np.array([0, 1, 0, 1, 0, 1])
BAD = {
    "floats": (GOOD.astype(np.float32), "labels of dtype float32"),
    "missing ones": (np.where(GOOD == 1, np.nan, GOOD), f"{(GOOD == 1).sum()} labels .* leave out"),
    "beyond int32": (GOOD.astype(np.int64) + 2**32, "label 4294967296"),
    "negative": (GOOD - 1, "label -1"),
    "beyond the head": (GOOD + 3, "label 4, expected class numbers from 0 to 3"),
}


def learner(heads=None, ring=False):
    if ring:
        memory = nccl_tf.RingMemory(2, TASK_CLASSES, IMAGE_SHAPE)
        model = nccl_tf.ExperienceReplay(tiny_network(), memory)
    else:
        model = nccl_tf.Finetune(tiny_network(), heads=heads)
    model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    return model


class Sequence(keras.utils.PyDataset):
    def __init__(self, labels):
        super().__init__()
        self.labels = labels

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return X, self.labels


FORMS = {
    "arrays": lambda labels: (X, labels),
    "dataset": lambda labels: (tf.data.Dataset.from_tensor_slices((X, labels)).batch(4),),
    "sequence": lambda labels: (Sequence(labels),),
}


@pytest.mark.parametrize(
    ("bad", "form"),
    [*((bad, "arrays") for bad in BAD), ("floats", "dataset"), ("negative", "sequence")],
)
def test_labels_that_are_no_classes(form, bad):
    labels, message = BAD[bad]
    model = learner()
    before = model.network.get_weights()
    with pytest.raises(nccl_tf.UserError, match=message):
        model.fit(*FORMS[form](labels), verbose=0)
    for left, right in zip(before, model.network.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(("place", "form"), [("heads", "dataset"), ("ring", "arrays")])
def test_labels_of_another_task(form, place):
    model = learner(TASK_CLASSES if place == "heads" else None, ring=place == "ring")
    with pytest.raises(nccl_tf.UserError, match=r"label 2 in task 0, whose classes are \[0, 1\]"):
        model.fit(*FORMS[form](GOOD + 1), verbose=0)


def test_labels_are_checked_in_evaluation_too():
    model = learner()
    for labels, message in BAD.values():
        with pytest.raises(nccl_tf.UserError, match=message):
            model.evaluate(X, labels, verbose=0)
        with pytest.raises(nccl_tf.UserError, match=message):
            model.accuracy(X, labels, 0)
    with pytest.raises(nccl_tf.UserError, match="dtype float32"):
        model.evaluate(*FORMS["dataset"](BAD["floats"][0]), verbose=0)


def test_a_ring_without_room_for_the_task():
    model = learner(ring=True)
    with pytest.raises(nccl_tf.UserError, match="classes of 2 tasks"):
        model.fit(X, GOOD, task_id=2, verbose=0)


def test_padding_may_have_any_label():
    table = np.array([[True, False]])
    check_labels(np.array([0, 1, 9]), 0, np.array([1.0, 0.0, 0.0]), 2, table)
    with pytest.raises(nccl_tf.UserError, match="label 1 in task 0"):
        check_labels(np.array([0, 1, 9]), 0, np.array([1.0, 2.0, 0.0]), 2, table)


def test_short_batches_of_a_stack_are_checked_without_padding():
    """Padding has label 0, which is no class of task 1."""
    model = learner(TASK_CLASSES)
    model.fit(*FORMS["dataset"](GOOD + 2), task_id=1, verbose=0)
    assert model.progress.seen_classes.numpy().tolist() == [False, False, True, True]


def test_an_unknown_mask_is_refused_without_heads():
    with pytest.raises(nccl_tf.UserError, match="unknown mask 'zzz'"):
        nccl_tf.Finetune(tiny_network(), mask="zzz")


def test_names_and_one_output_have_a_remedy_of_their_own():
    with pytest.raises(nccl_tf.UserError, match="return_inverse=True"):
        learner().fit(X, np.array(["a", "b"])[GOOD % 2], verbose=0)
    with pytest.raises(nccl_tf.UserError, match=r"BinaryCrossentropy\(from_logits=True\)"):
        check_labels(np.array([0, 1]), 0, None, 1, None)


def test_masked_labels_and_weights_are_refused():
    model = learner()
    masked = np.ma.masked_equal(GOOD, 1)
    for verb in (model.fit, model.train_on_batch, model.evaluate, model.test_on_batch):
        with pytest.raises(nccl_tf.UserError, match="labels with 3 masked"):
            verb(X, masked)
        with pytest.raises(nccl_tf.UserError, match="sample_weight with 3 masked"):
            verb(X, GOOD, sample_weight=masked)
    with pytest.raises(nccl_tf.UserError, match="labels with 3 masked"):
        model.accuracy(X, masked)


@pytest.mark.parametrize(("weight", "loss"), [(np.nan, None)])
def test_weights_below_0_are_refused(weight, loss):
    model = nccl_tf.Finetune(tiny_network())
    model.compile("sgd", loss=loss)
    labels = GOOD if loss is None else np.eye(4, dtype=np.float32)[GOOD]
    weights = np.array([1, 1, 1, 1, 1, weight])
    before = model.network.get_weights()
    for verb in (model.fit, model.train_on_batch, model.evaluate, model.test_on_batch):
        with pytest.raises(nccl_tf.UserError, match="sample_weight"):
            verb(X, labels, sample_weight=weights)
    with pytest.raises(nccl_tf.UserError, match="sample_weight"):
        model.fit(tf.data.Dataset.from_tensor_slices((X, labels, weights)).batch(6), verbose=0)
    if loss is None:
        for verb in (model.fit, model.train_on_batch):
            with pytest.raises(nccl_tf.UserError, match="class_weight"):
                verb(X, labels, class_weight={0: 1.0, 1: weight})
    for left, right in zip(before, model.network.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
