"""A call of `learn` that is killed and called again ends with the same bits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.callbacks import StepRecord
from nccl_tf.errors import UserError
from nccl_tf.experiment.run.files import lock_folder
from tests.session.test_learn import again, assert_equal, tiny_stream, weights

SETTINGS = {"batch_size": 5, "epochs": 2, "seed": 1, "verbose": 0}


class Killed(Exception):
    pass


class Kill(keras.callbacks.Callback):
    """Ends training after so many calls of the graph; its count is not of this training."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def on_train_batch_end(self, batch, logs=None):
        self.calls -= 1
        if not self.calls:
            raise Killed

    def state(self):
        return {}

    def restore(self, state):
        pass


def learn(folder, *callbacks, model=None, **settings):
    model = model or again()
    arguments = {**SETTINGS, "backup_dir": folder, "backup_every": 0.0, **settings}
    return model, nccl_tf.learn(model, tiny_stream(), callbacks=callbacks, **arguments)


@pytest.fixture(scope="module")
def undisturbed():
    model, result = learn(None)
    return weights(model), result


# 5 batches an epoch in 3 calls: within epochs, twice in one, at the ends of an epoch and a task.
@pytest.mark.parametrize("kills", [(1,), (2, 2), (6,), (11,)])
def test_the_same_bits_wherever_it_was_killed(kills, tmp_path, undisturbed):
    for calls in kills:
        with pytest.raises(Killed):
            learn(tmp_path, Kill(calls))
    # Other weights than the first, as a new process without a seed has.
    model = again()
    for variable in model.trainable_variables:
        variable.assign(tf.zeros_like(variable.value))
    _, result = learn(tmp_path, Kill(0), model=model)
    assert_equal(weights(model), undisturbed[0])
    for name in ("matrix", "initial"):
        np.testing.assert_array_equal(getattr(result, name), getattr(undisturbed[1], name))


def test_called_after_its_end_it_answers_at_once(tmp_path):
    model, result = learn(tmp_path, Kill(0))
    trained = weights(model)
    model, answer = learn(tmp_path, Kill(1))
    assert_equal(weights(model), trained)
    np.testing.assert_array_equal(answer.matrix, result.matrix)


def test_callbacks_with_state_go_on(tmp_path):
    files = [tmp_path / "whole.csv", tmp_path / "killed.csv"]
    learn(tmp_path / "whole", StepRecord(files[0], every=2))
    with pytest.raises(Killed):
        learn(tmp_path / "backup", StepRecord(files[1], every=2), Kill(4))
    learn(tmp_path / "backup", StepRecord(files[1], every=2), Kill(0))
    assert files[0].read_text() == files[1].read_text()


LONG = {"epochs": 14, "backup_every": 1e9}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """What a training that nobody kills writes."""
    whole = StepRecord(tmp_path_factory.mktemp("whole") / "steps.csv", every=2)
    learn(None, whole, **LONG)
    return whole.path.read_text()


# 42 calls a task, without a backup in its midst; rows are written after call 38 of it.
@pytest.mark.parametrize("calls", [2, 40, 82])
def test_a_record_that_is_used_again_has_every_row_once(calls, tmp_path, rows):
    killed = StepRecord(tmp_path / "killed.csv", every=2)
    with pytest.raises(Killed):
        learn(tmp_path / "backup", killed, Kill(calls), **LONG)
    learn(tmp_path / "backup", killed, Kill(0), **LONG)
    assert rows == killed.path.read_text()


class StopsEarly(Kill):
    """Stops each task after its second epoch, and ends training after so many calls."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            self.model.stop_training = True


def test_a_stop_in_the_rest_of_an_epoch_is_a_stop(tmp_path):
    whole, _ = learn(None, StopsEarly(0), epochs=4)
    with pytest.raises(Killed):
        learn(tmp_path, StopsEarly(4), epochs=4)  # within the second epoch
    model, _ = learn(tmp_path, StopsEarly(0), epochs=4)
    assert_equal(weights(model), weights(whole))


class CountsEpochs(Kill):
    """Counts the epochs of both tasks, and ends training as the count gets to `calls`."""

    ended = 0

    def on_train_batch_end(self, batch, logs=None):
        pass

    def on_epoch_end(self, epoch, logs=None):
        if self.ended + 1 == self.calls:
            raise Killed
        self.ended += 1

    def state(self):
        return {"ended": self.ended}

    def restore(self, state):
        self.ended = state["ended"]


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_no_end_of_an_epoch_is_lost(calls, tmp_path, undisturbed):
    with pytest.raises(Killed):
        learn(tmp_path, CountsEpochs(calls))
    counts = CountsEpochs(0)
    model, _ = learn(tmp_path, counts)
    assert counts.ended == 2 * SETTINGS["epochs"]
    assert_equal(weights(model), undisturbed[0])


def test_a_callback_that_would_lose_state_gets_whole_tasks(tmp_path, undisturbed):
    def patient():
        return keras.callbacks.EarlyStopping("loss", patience=9)

    with pytest.raises(Killed):
        learn(tmp_path, patient(), Kill(11))
    seen = []
    epochs = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(epoch))
    model, _ = learn(tmp_path, patient(), Kill(0), epochs)
    assert seen == [0, 1]  # the second task, from its beginning
    assert_equal(weights(model), undisturbed[0])


def halved(epoch, rate):
    return rate / 2


def by_number(epoch):
    return 0.2 / (1 + epoch)


@pytest.mark.parametrize("schedule", [halved, by_number])
@pytest.mark.parametrize("kept", [False, True], ids=["made again", "the same model"])
def test_a_schedule_acts_once_on_each_epoch(schedule, kept, tmp_path):
    def scheduler():
        return keras.callbacks.LearningRateScheduler(schedule)

    expected = weights(learn(None, scheduler())[0])
    model = again()
    for calls in (8, 2):  # within the first epoch of the second task
        with pytest.raises(Killed):
            learn(tmp_path, scheduler(), Kill(calls), model=model)
        model = model if kept else again()
    for _ in range(2):  # the rest, and the answer at once
        learn(tmp_path, scheduler(), Kill(0), model=model)
        assert_equal(weights(model), expected)


@pytest.mark.parametrize(
    "change", [{"epochs": 3}, {"metric": "sparse_categorical_accuracy"}, {"evaluate": "new"}]
)
def test_a_backup_of_another_call_is_refused(change, tmp_path):
    with pytest.raises(Killed):
        learn(tmp_path, Kill(1))
    with pytest.raises(UserError, match=r"does not fit this call .* give another backup_dir"):
        learn(tmp_path, Kill(0), **change)


def test_a_backup_at_another_rate_is_refused(tmp_path):
    with pytest.raises(Killed):
        learn(tmp_path, Kill(1))
    model = again()
    model.optimizer.learning_rate = 0.1
    with pytest.raises(UserError, match=r"the backup in .* does not fit this call"):
        learn(tmp_path, Kill(0), model=model)


def test_a_backup_of_another_network_is_refused(tmp_path):
    with pytest.raises(Killed):
        learn(tmp_path, Kill(1))
    network = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten()])
    network.add(keras.layers.Dense(4))
    model = nccl_tf.ExperienceReplay(
        network, nccl_tf.ReservoirMemory(6, (4, 4, 1)), memory_batch_size=3
    )
    model.compile(keras.optimizers.SGD(0.2, momentum=0.5))
    with pytest.raises(UserError, match=r"the backup in .* does not fit this call"):
        nccl_tf.learn(model, tiny_stream(), **SETTINGS, backup_dir=tmp_path)


def test_a_folder_in_use_is_refused(tmp_path):
    with lock_folder(tmp_path), pytest.raises(UserError, match="choose another backup_dir"):
        learn(tmp_path)
