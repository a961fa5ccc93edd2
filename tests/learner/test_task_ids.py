"""Task ids that are no integers from 0, or of tasks without a head, are refused by every verb."""

import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from tests.tiny import TASK_CLASSES, tiny_network

X = np.random.default_rng(0).integers(0, 255, (6, 4, 4, 1), np.uint8)
Y = np.array([0, 1, 0, 1, 0, 1])


@pytest.fixture(scope="module")
def learner():
    model = nccl_tf.Finetune(tiny_network(), heads=TASK_CLASSES)
    model.compile("sgd")
    return model


def verbs(learner):
    """Each verb on inputs, with the labels where it takes them."""
    return {
        "fit": lambda x, **k: learner.fit(x, Y, verbose=0, **k),
        "train_on_batch": lambda x, **k: learner.train_on_batch(x, Y, **k),
        "evaluate": lambda x, **k: learner.evaluate(x, Y, verbose=0, **k),
        "predict": lambda x, **k: learner.predict(x, verbose=0, **k),
    }


WRONG_FORMS = {
    "dtype float64": np.zeros(6),
    "dtype bool": np.zeros(6, bool),
    "dtype string": np.array(["0"] * 6),
    r"shape \(6, 1\)": np.zeros((6, 1), int),
    r"shape \(\)": np.array(0),
    "as list": [0] * 6,
    "as int": 0,
}


@pytest.mark.parametrize("wrong", WRONG_FORMS)
def test_ids_in_data_are_integers_one_for_each_example(learner, wrong):
    for verb in verbs(learner).values():
        with pytest.raises(nccl_tf.UserError, match=f"task ids .*{wrong}, expected"):
            verb({"inputs": X, "task": WRONG_FORMS[wrong]})
    assert int(learner.progress.task) == -1


@pytest.mark.parametrize("tasks", [np.zeros((6, 1), int), np.zeros(6)])
def test_ids_in_a_dataset_are_too(learner, tasks):
    x = {"inputs": X, "task": tasks}
    data = tf.data.Dataset.from_tensor_slices((x, Y)).batch(3)
    for verb in (learner.fit, learner.evaluate, learner.predict):
        with pytest.raises(nccl_tf.UserError, match="received task ids of"):
            verb(data, verbose=0)


@pytest.mark.parametrize("task", [2, 2**32])
def test_predict_refuses_a_task_without_a_head(learner, task):
    x = {"inputs": X, "task": np.array([0, 1, 0, 1, 0, task])}
    for data in (x, tf.data.Dataset.from_tensor_slices(x).batch(3)):
        with pytest.raises(nccl_tf.UserError, match=r"received task -?\d+, but .* heads for 2"):
            learner.predict(data, verbose=0)
    with pytest.raises(nccl_tf.UserError, match=r"received task -?\d+, but .* heads for 2"):
        learner.predict_on_batch(x)


@pytest.mark.parametrize("task_id", [0.5, -1, 2**31])
def test_a_call_names_a_task_by_a_number(learner, task_id):
    single = nccl_tf.Finetune(tiny_network())
    single.compile("sgd")
    for model in (learner, single):
        before = int(model.progress.task)
        for verb in verbs(model).values():
            with pytest.raises(nccl_tf.UserError, match="received task_id="):
                verb(X, task_id=task_id)
        with pytest.raises(nccl_tf.UserError, match="received task_id="):
            model.accuracy(X, Y, task_id)
        assert int(model.progress.task) == before


@pytest.mark.parametrize(("task", "loss"), [(2**31 + 5, "mse")])
def test_ids_that_32_bits_would_change_are_refused(task, loss):
    """A memory would store 2**31 + 5 as another task."""
    model = nccl_tf.Finetune(tiny_network())
    model.compile("sgd", loss=loss)
    x, labels = {"inputs": X, "task": np.array([0, 1, 0, 1, 0, task])}, Y
    if loss == "mse":
        labels = np.eye(4, dtype=np.float32)[Y]
    data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(6)
    for verb in (model.fit, model.train_on_batch):
        with pytest.raises(nccl_tf.UserError, match=f"of task {task}"):
            verb(x, labels)
    with pytest.raises(nccl_tf.UserError, match=f"of task {task}"):
        model.fit(data, verbose=0)
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize("heads", [[], [0, 1], [[0, 0.5]], "ab"])
def test_heads_are_lists_of_class_numbers(heads):
    with pytest.raises(nccl_tf.UserError, match=r"received (heads=|no heads)"):
        nccl_tf.Finetune(tiny_network(), heads=heads)
