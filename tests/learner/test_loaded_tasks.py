"""Weights that are loaded bring a task with them: it is the one that is learned, or is refused."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError

pytestmark = pytest.mark.eager

LABELS = np.arange(24) % 6
INPUTS = np.random.default_rng(3).normal(size=(24, 5)).astype("float32")


class Stopped(Exception):
    pass


class StopAfter(keras.callbacks.Callback):
    """Ends a fit by an error when so many epochs have ended."""

    def __init__(self, epochs):
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.epochs:
            raise Stopped


def learner():
    dense = keras.layers.Dense(6, kernel_initializer=keras.initializers.GlorotUniform(1))
    network = keras.Sequential([keras.Input((5,)), dense])
    model = nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(40, (5,), "float32"))
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return model


def fit(model, task, *callbacks, **arguments):
    own = task == LABELS // 2
    arguments = {"task_id": task, "epochs": 2, "shuffle": False, "verbose": 0, **arguments}
    return model.fit(INPUTS[own], LABELS[own], callbacks=list(callbacks), **arguments)


def loop(folder_of, stop=None):
    """Three tasks with a backup, stopped after so many epochs of the task in the middle."""
    model = learner()
    for task in range(3):
        callbacks = [keras.callbacks.BackupAndRestore(folder_of(task))]
        if task == 1 and stop:
            callbacks.append(StopAfter(stop))
        fit(model, task, *callbacks)
    return model


def stopped(folder_of, epochs):
    with pytest.raises(Stopped):
        loop(folder_of, epochs)


def test_a_backup_of_another_task_is_refused(tmp_path):
    stopped(lambda task: tmp_path, 1)
    with pytest.raises(UserError, match=r"state of task 1, .* in the midst of task 0"):
        loop(lambda task: tmp_path)


@pytest.mark.parametrize("epochs", [1, 2])
def test_with_a_folder_for_each_task_a_loop_goes_on(epochs, tmp_path):
    """Stopped after the last epoch of a task too; the task after it has all of its epochs."""
    expected = loop(lambda task: tmp_path / "whole" / str(task))
    stopped(lambda task: tmp_path / str(task), epochs)
    model = loop(lambda task: tmp_path / str(task))
    assert int(model.progress.tasks_ended.numpy()) == 3
    for left, right in zip(model.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=left.path)


class Loads(keras.callbacks.Callback):
    """Loads weights when an epoch begins."""

    def __init__(self, path, epoch):
        super().__init__()
        self.path, self.epoch = path, epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            self.model.load_weights(self.path)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_state_after_the_end_of_its_task_is_refused(epoch, tmp_path):
    model, path = learner(), tmp_path / "ended.weights.h5"
    fit(model, 0)
    model.save_weights(path)
    with pytest.raises(UserError, match=r"state of task 0, which has ended .* task 1"):
        fit(model, 1, Loads(path, epoch))


def test_a_callback_may_end_a_task_and_begin_the_next():
    model = learner()

    def change(epoch, logs):
        model.end_task()
        model.begin_task(epoch + 1)

    fit(model, 0, keras.callbacks.LambdaCallback(on_epoch_end=change))
    assert int(model.progress.tasks_ended.numpy()) == 3


@pytest.mark.parametrize("verb", ["fit", "train_on_batch"])
def test_a_file_that_leaves_a_task_open_is_told_of(verb, tmp_path, caplog):
    path = tmp_path / "best.weights.h5"
    model = learner()
    fit(model, 0, keras.callbacks.ModelCheckpoint(path, save_weights_only=True))
    model.load_weights(path)
    learn = getattr(model, verb)
    for _ in range(2):
        learn(
            INPUTS[:4], LABELS[:4], **({"verbose": 0, "end_task": False} if verb == "fit" else {})
        )
    assert caplog.text.count("the file that was loaded has left open") == 1
    assert int(model.progress.task.numpy()) == 0
