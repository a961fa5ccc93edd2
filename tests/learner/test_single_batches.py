"""`train_on_batch`, `test_on_batch` and `predict_on_batch` are `fit`, `evaluate` and `predict`."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import LearningFailedError, UserError
from tests.methods.learners import assert_same_state
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network


def replay(heads=None, run_eagerly=True):
    learner = nccl_tf.ExperienceReplay(
        tiny_network(), nccl_tf.ReservoirMemory(8), memory_batch_size=4, heads=heads
    )
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], run_eagerly=run_eagerly)
    return learner


def batches(task, count=20):
    for inputs, labels, _ in tiny_batches(task, count):
        yield inputs["inputs"].numpy(), labels.numpy()


def test_batch_after_batch_is_a_fit():
    one, other = (replay(TASK_CLASSES, run_eagerly=False) for _ in range(2))
    for task in (0, 1):
        one.fit(tiny_batches(task, 20), verbose=0)
        for x, y in batches(task):
            other.train_on_batch(x, y)
        assert int(other.progress.task.numpy()) == task
        assert bool(other.progress.task_is_open.numpy())
        other.end_task()
    assert_same_state(one, other)
    assert other.execution.traces == 1


def test_a_batch_names_its_task():
    learner = replay(TASK_CLASSES)
    x, y = next(batches(1))
    logs = learner.train_on_batch(x, y, task_id=1, return_dict=True)
    assert int(learner.progress.task.numpy()) == 1 and np.isfinite(logs["loss"])
    named = {"inputs": x, "task": np.full(len(x), 1)}
    assert learner.test_on_batch(named, y) == learner.evaluate(x, y, task_id=1, verbose=0)
    np.testing.assert_array_equal(
        learner.predict_on_batch(named), learner.predict(x, task_id=1, verbose=0)
    )


def test_a_batch_returns_what_keras_returns():
    learner = replay()
    x, y = next(batches(0))
    loss, accuracy = learner.train_on_batch(x, y)
    logs = learner.train_on_batch(x, y, return_dict=True)
    assert np.isfinite(loss) and 0 <= accuracy <= 1 and {"loss", "memory_loss"} <= logs.keys()
    assert len(learner.test_on_batch(x, y)) == len(learner.evaluate(x, y, verbose=0)) == 2
    assert learner.metrics_names == ["loss", "compile_metrics"]
    learner.compile("sgd")
    assert np.isscalar(learner.train_on_batch(x, y))  # the loss alone


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_class_weights_count(run_eagerly):
    x, y = next(batches(0))
    weighted, plain = (replay(run_eagerly=run_eagerly) for _ in range(2))
    weighted.train_on_batch(x, y, class_weight={0: 3.0})
    plain.train_on_batch(x, y, sample_weight=np.where(y == 0, 3.0, 1.0))
    assert_same_state(weighted, plain)


def test_a_label_without_a_class_is_refused():
    x, y = next(batches(0))
    with pytest.raises(UserError, match="received the label 9"):
        replay().train_on_batch(x, y * 0 + 9)


def test_ten_batches_without_a_finite_loss_fail():
    learner = replay(run_eagerly=False)
    x, y = next(batches(0))
    bad = np.full(len(y), 3e38, np.float32)  # Their sum is infinite.
    for _ in range(9):
        learner.train_on_batch(x, y, sample_weight=bad)
    with pytest.raises(LearningFailedError, match="10 steps in a row"):
        learner.train_on_batch(x, y, sample_weight=bad)
    assert np.isfinite(learner.train_on_batch(x, y)[0])
