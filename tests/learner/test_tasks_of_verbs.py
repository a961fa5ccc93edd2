"""`evaluate`, `predict` and `accuracy` speak of the same task, or ask which one is meant."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network


def arrays(task: int, count: int = 60):
    inputs, labels, _ = next(iter(tiny_batches(task, count, count, seed=5)))
    return inputs["inputs"].numpy(), labels.numpy()


@pytest.fixture(scope="module")
def learner():
    """Has learned both tasks, each with its head; the last one is task 1."""
    model = nccl_tf.Finetune(tiny_network(), heads=TASK_CLASSES)
    model.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"])
    for task in (0, 1):
        model.fit(tiny_batches(task, 200), verbose=0)
    return model


def right(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(np.argmax(logits, axis=1) == labels))


def test_the_three_verbs_agree_on_an_earlier_task(learner):
    x, y = arrays(0)
    expected = learner.accuracy(x, y, 0)
    assert expected > 0.9
    result = learner.evaluate(x, y, task_id=0, verbose=0, return_dict=True)
    assert result["accuracy"] == pytest.approx(expected) and result["loss"] < 1
    assert right(learner.predict(x, task_id=0, verbose=0), y) == pytest.approx(expected)
    named = {"inputs": x, "task": np.zeros(len(y), np.int32)}
    assert learner.evaluate(named, y, verbose=0)[1] == pytest.approx(expected)
    assert right(learner.predict(named, verbose=0), y) == pytest.approx(expected)
    assert learner.accuracy(named, y) == expected


def test_accuracy_knows_the_task_of_each_example(learner):
    """Of a task of a stream, whose test examples it takes, and of examples of several tasks."""
    (x, y), (other_x, other_y) = arrays(0), arrays(1)
    both = np.concatenate([x, other_x]), np.concatenate([y, other_y])
    tasks = np.repeat([0, 1], [len(y), len(other_y)])
    share = learner.accuracy({"inputs": both[0], "task": tasks}, both[1])
    assert share == (learner.accuracy(x, y, 0) + learner.accuracy(other_x, other_y, 1)) / 2
    own = [(data, data) for data in ((x, y), (other_x, other_y))]
    task = nccl_tf.stream_from_datasets(own, head="multi")[1]
    assert learner.accuracy(task) == learner.accuracy(other_x, other_y, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (lambda x, y: (x, y), "without their task"),
        (lambda x, y: ({"inputs": x, "task": np.zeros(len(y), int)}, y, 0), "leave one of them"),
        (lambda x, y: ({"inputs": x, "task": np.full(len(y), 7)}, y), "7"),
        (lambda x, y: ({"inputs": x, "task": np.zeros(len(y))}, y), "integers from 0"),
        (lambda x, y: (x,), "inputs without labels"),
    ],
)
def test_accuracy_refuses_what_it_would_have_to_guess(learner, arguments, said):
    with pytest.raises(UserError, match=said):
        learner.accuracy(*arguments(*arrays(0)))


FORMS = {
    "arrays": lambda: arrays(0),
    "dataset": lambda: (tf.data.Dataset.from_tensors(arrays(0)),),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_multi_head_asks_for_the_task(learner, form):
    data = FORMS[form]()
    assert learner.evaluate(*data, task_id=0, verbose=0)[1] > 0.9
    for verb in (learner.evaluate, lambda x, *_, **k: learner.predict(x, **k)):
        with pytest.raises(nccl_tf.UserError, match="pass task_id"):
            verb(*data, verbose=0)
    with pytest.raises(nccl_tf.UserError, match="heads for 2 tasks"):
        learner.evaluate(*data, task_id=2, verbose=0)


def test_single_batches_are_asked_for_their_task_too(learner):
    x, y = arrays(0)
    with pytest.raises(nccl_tf.UserError, match="pass task_id"):
        learner.test_on_batch(x, y)
    with pytest.raises(nccl_tf.UserError, match="pass task_id"):
        learner.predict_on_batch(x)


def test_a_task_is_named_once(learner):
    with pytest.raises(nccl_tf.UserError, match="leave one of them out"):
        learner.evaluate(tiny_batches(0), task_id=0, verbose=0)
    with pytest.raises(nccl_tf.UserError, match=r"label \d in task 1"):
        learner.evaluate(*arrays(0), task_id=1, verbose=0)


def test_a_fit_validates_on_the_task_it_learns():
    model = nccl_tf.Finetune(tiny_network(), heads=TASK_CLASSES)
    model.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"])
    for task in (0, 1):
        x, y = arrays(task, 120)
        history = model.fit(x, y, batch_size=5, verbose=0, validation_data=arrays(task)).history
        assert history["val_accuracy"][-1] > 0.9 and history["val_loss"][-1] < 1


def test_evaluate_after_a_fit_with_validation_sees_all():
    model = nccl_tf.Finetune(tiny_network())
    model.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"], run_eagerly=True)
    x, y = arrays(0, 60)
    model.fit(x, y, batch_size=5, verbose=0, validation_data=(x[:5], y[:5]))
    wrong = np.where(np.arange(60) < 5, y, 1 - y)
    assert model.evaluate(x, wrong, batch_size=5, verbose=0)[1] == pytest.approx(5 / 60, abs=0.05)


def test_predict_of_a_task_asks_as_evaluate_does(learner):
    stream = nccl_tf.load_stream("split_digits", max_tasks=2)
    with pytest.raises(nccl_tf.UserError, match="one of its tasks"):
        learner.predict(nccl_tf.JointTask(list(stream)))
    with pytest.raises(nccl_tf.UserError, match="leave task_id out"):
        learner.predict(stream[0], task_id=1)


def test_a_fit_of_no_epoch_ends_no_task():
    model = nccl_tf.Finetune(tiny_network())
    model.compile(keras.optimizers.SGD(0.25), run_eagerly=True)
    model.fit(*arrays(0), epochs=0, verbose=0)
    model.fit(*arrays(0), verbose=0)
    assert (int(model.progress.task.numpy()), int(model.progress.tasks_ended.numpy())) == (0, 1)
