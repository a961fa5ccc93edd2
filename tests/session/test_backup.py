"""A call of `learn` that is killed and called again ends with the same bits."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.callbacks import StepRecord
from nccl_tf.errors import UserError
from nccl_tf.records.checkpoints import CheckpointStore, variables_to_arrays
from nccl_tf.records.files import lock_folder
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task
from tests.session.test_learn import again, assert_equal, tiny_model, tiny_stream, weights
from tests.tiny import renewed, tiny_network

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


def state(model):
    """Weights, and what the memory holds and has counted."""
    model.memory.blank_spare_row()
    return [*weights(model), *(variable.numpy() for variable in model.memory.variables)]


@pytest.fixture(scope="module")
def undisturbed():
    model, result = learn(None)
    return state(model), result


@pytest.mark.eager
def test_sums_of_an_epoch_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(Killed):
        learn(tmp_path, Kill(2))
    store = CheckpointStore(tmp_path)
    found = store.last()
    del found.arrays[next(name for name in found.arrays if name.startswith("epoch "))]
    store.save(found)
    with pytest.raises(UserError, match="do not fit this call"):
        learn(tmp_path, Kill(0))


# 5 batches an epoch in 3 calls: within epochs, twice in one, at the ends of an epoch and a task.
@pytest.mark.parametrize("kills", [(11,), (2, 2)])
def test_the_same_bits_wherever_it_was_killed(kills, tmp_path, undisturbed):
    for calls in kills:
        with pytest.raises(Killed):
            learn(tmp_path, Kill(calls))
    # Other weights than the first, as a new process without a seed has.
    model = again()
    for variable in model.trainable_variables:
        variable.assign(tf.zeros_like(variable.value))
    _, result = learn(tmp_path, Kill(0), model=model)
    assert_equal(state(model), undisturbed[0])
    assert int(model.memory.seen.numpy()) == sum(task.num_train for task in tiny_stream())
    for name in ("matrix", "initial"):
        np.testing.assert_array_equal(getattr(result, name), getattr(undisturbed[1], name))


def test_the_same_bits_with_passes_of_each_task(tmp_path):
    whole, _ = learn(None, epochs=[2, 1])
    for calls in (2, 5):
        with pytest.raises(Killed):
            learn(tmp_path, Kill(calls), epochs=[2, 1])
    model, _ = learn(tmp_path, Kill(0), epochs=[2, 1])
    assert_equal(state(model), state(whole))


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


@pytest.mark.nightly
def test_a_record_that_is_used_again_has_every_row_once(tmp_path, rows):
    calls = 40  # of 42 in the task, without a backup in its midst; rows are written after 38
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
    whole = weights(learn(None, StopsEarly(0), epochs=4)[0])
    with pytest.raises(Killed):
        learn(tmp_path, StopsEarly(4), epochs=4)  # within the second epoch
    model, _ = learn(tmp_path, StopsEarly(0), epochs=4)
    assert_equal(weights(model), whole)


class KeepsLogs(Kill):
    """Keeps the logs of every epoch, as callbacks do that decide by them."""

    def __init__(self, calls):
        super().__init__(calls)
        self.logs = []

    def on_epoch_end(self, epoch, logs=None):
        self.logs.append(dict(sorted(logs.items())))

    def state(self):
        return {"logs": self.logs}

    def restore(self, state):
        self.logs = state["logs"]


@pytest.mark.parametrize("mirrored", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_an_epoch_has_the_means_of_all_its_steps(mirrored, tmp_path):
    """In a new process, too, whose metrics have no variables before their first batch."""

    def logs(folder, calls):
        entropy = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy")
        strategy = tf.distribute.MirroredStrategy(["CPU:0"]) if mirrored else None
        with strategy.scope() if strategy else contextlib.nullcontext():
            steps = 1 if mirrored else 2
            model = tiny_model(
                metrics=["accuracy", entropy], steps_per_execution=steps, run_eagerly=not mirrored
            )
        kept = KeepsLogs(calls)
        nccl_tf.learn(
            model, tiny_stream(num_tasks=1, count=16), **{**SETTINGS, "batch_size": 4},
            callbacks=[kept], backup_dir=folder, backup_every=0.0,
        )  # fmt: skip
        return kept.logs

    with pytest.raises(Killed):
        logs(tmp_path, 3)  # within an epoch
    expected = logs(None, 0)
    assert {"loss", "accuracy", "entropy", "memory_loss"} <= expected[0].keys()
    assert logs(tmp_path, 0) == expected


def compiled(jit_compile=True, steps=3):
    model = nccl_tf.Finetune(tiny_network())
    optimizer = keras.optimizers.SGD(0.2, momentum=0.5)
    model.compile(optimizer, jit_compile=jit_compile, steps_per_execution=steps)
    return model


def learn_compiled(folder, *callbacks, model=None, **compile_arguments):
    """Two tasks of 8 batches in calls of 3, 3 and 2."""
    model, stream = model or compiled(**compile_arguments), tiny_stream(count=80)
    arguments = {**SETTINGS, "epochs": 1, "backup_dir": folder, "backup_every": 0.0}
    nccl_tf.learn(model, stream, callbacks=callbacks, **arguments)
    return model


@pytest.mark.seconds(20)  # XLA compiles two programs for each of two models
def test_a_killed_task_ends_in_the_same_bits_under_xla(tmp_path):
    model = compiled()
    first = variables_to_arrays(model.state_variables)
    expected = weights(learn_compiled(None, model=model))
    with pytest.raises(Killed):
        learn_compiled(tmp_path, Kill(2), model=renewed(model, first))
    for other in ({"jit_compile": False}, {"steps": 4}):
        with pytest.raises(UserError, match=r"they are of another jit_compile .*=3 there"):
            learn_compiled(tmp_path, Kill(0), **other)
    model = learn_compiled(tmp_path, Kill(0))
    assert_equal(weights(model), expected)
    assert (model.execution.under_xla, model.execution.per_program) == (True, 3)


def test_what_decides_bits_is_that_of_the_call_that_began(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    with pytest.raises(Killed):
        learn(tmp_path, Kill(1))
    monkeypatch.delenv("TF_DETERMINISTIC_OPS")
    with pytest.raises(UserError, match=r"another environment .*TF_DETERMINISTIC_OPS=1 there"):
        learn(tmp_path, Kill(0))


class CountsCalls(Kill):
    """Acts every nine batches, and notes where the calls of the graph end."""

    update_freq = 9

    def __init__(self, calls):
        super().__init__(calls)
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(batch)
        super().on_train_batch_end(batch)


def test_the_rest_of_an_epoch_has_the_calls_of_the_whole(tmp_path):
    """Not one of nine, of the nine batches that are left."""
    stream, model = tiny_stream(num_tasks=1, count=60), tiny_model(steps_per_execution=9)
    given = {**SETTINGS, "epochs": 1, "backup_dir": tmp_path, "backup_every": 0.0}
    killed, resumed = CountsCalls(2), CountsCalls(0)
    with pytest.raises(Killed):
        nccl_tf.learn(model, stream, callbacks=[killed], **given)
    nccl_tf.learn(model, stream, callbacks=[resumed], **given)
    assert (killed.ends, resumed.ends) == ([2, 5], [2, 5, 8])


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


def test_no_end_of_an_epoch_is_lost(tmp_path, undisturbed):
    calls = 2
    with pytest.raises(Killed):
        learn(tmp_path, CountsEpochs(calls))
    counts = CountsEpochs(0)
    model, _ = learn(tmp_path, counts)
    assert counts.ended == 2 * SETTINGS["epochs"]
    assert_equal(state(model), undisturbed[0])


def test_a_callback_that_would_lose_state_gets_whole_tasks(tmp_path, undisturbed):
    def patient():
        return keras.callbacks.EarlyStopping("loss", patience=9)

    with pytest.raises(Killed):
        learn(tmp_path, patient(), Kill(11))
    seen = []
    epochs = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(epoch))
    model, _ = learn(tmp_path, patient(), Kill(0), epochs)
    assert seen == [0, 1]  # the second task, from its beginning
    assert_equal(state(model), undisturbed[0])


class Scores(Kill):
    """Gives each epoch of a task its score, and ends training as the third of the first begins."""

    def on_train_batch_end(self, batch, logs=None):
        pass

    def on_epoch_begin(self, epoch, logs=None):
        self.calls -= 1
        if not self.calls:
            raise Killed

    def on_epoch_end(self, epoch, logs=None):
        logs["score"] = (0.5, 0.3, 0.6, 0.7)[epoch]


def test_the_best_of_a_task_is_not_written_over(tmp_path):
    def best():
        return keras.callbacks.ModelCheckpoint(
            tmp_path / "{epoch}.weights.h5", "score", mode="min", save_best_only=True,
            save_weights_only=True,
        )  # fmt: skip

    with pytest.raises(Killed):
        learn(tmp_path / "backup", Scores(3), best(), epochs=4)
    for path in tmp_path.glob("*.h5"):
        path.unlink()
    learn(tmp_path / "backup", Scores(0), best(), epochs=4)
    assert sorted(path.name[0] for path in tmp_path.glob("*.h5")) == ["1", "2", "5", "6"]


def test_a_repeated_call_is_the_same_run(tmp_path):
    """Its settings have the rate that the first call began with, and its time is of training."""
    model = again()

    def plateau():
        # No value is better than the first by 9.
        return keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=9.0)

    first, second = (learn(tmp_path, plateau(), model=model, epochs=4)[1].run for _ in range(2))
    assert float(model.optimizer.learning_rate.numpy()) < 0.2
    assert second.settings == first.settings
    assert second.settings.learning_rate == pytest.approx(0.2)
    assert second.measured["train_seconds"] >= first.measured["train_seconds"] * 0.5 > 0
    for name in ("steps", "task_steps", "learning_rates", "examples_passed"):
        assert second.measured[name] == first.measured[name]


def halved(epoch, rate):
    return rate / 2


def by_number(epoch):
    return 0.2 / (1 + epoch)


@pytest.mark.parametrize(
    ("schedule", "kept"),
    [pytest.param(halved, False, marks=pytest.mark.nightly), (by_number, True)],
)
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


def test_a_backup_of_another_call_is_refused(tmp_path):
    with pytest.raises(Killed):
        learn(tmp_path, Kill(1))
    for change in ({"epochs": 3}, {"metric": "sparse_categorical_accuracy"}, {"evaluate": "new"}):
        with pytest.raises(UserError, match=r"do not fit this call .* give another backup_dir"):
            learn(tmp_path, Kill(0), **change)
    model = again()
    model.optimizer.learning_rate = 0.1
    with pytest.raises(UserError, match=r"the checkpoints in .* do not fit this call"):
        learn(tmp_path, Kill(0), model=model)


def test_a_place_that_is_none_is_refused(tmp_path):
    with pytest.raises(Killed):
        learn(tmp_path, Kill(1))
    store, model = CheckpointStore(tmp_path), again()
    found = store.last()
    for place in ([0, None, 0], [0, 1.5, 0], ["x", 0, 0], [0, -1, 0], 7):
        store.save(found._replace(meta={**found.meta, "place": place}))
        with pytest.raises(UserError, match=r"do not fit this call"):
            learn(tmp_path, Kill(0), model=model)


def small(activation="relu", loss=None, metrics=("accuracy",), seed=0, **dense):
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((4, 4, 1)), keras.layers.Flatten()]
    layers += [keras.layers.Dense(3, activation=activation, **dense), keras.layers.Dense(4)]
    model = nccl_tf.ExperienceReplay(
        keras.Sequential(layers), nccl_tf.ReservoirMemory(6, (4, 4, 1)), memory_batch_size=3
    )
    model.compile(keras.optimizers.SGD(0.2), loss=loss, metrics=list(metrics))
    return model


def changed(stream, task, part, column):
    """The stream, of which one number of the last example of a task is another one."""

    def examples(which, number):
        inputs, labels = (np.copy(a) for a in getattr(stream[number], which))
        if (which, number) == (part, task):
            (inputs if column == "inputs" else labels).reshape(-1)[-1] ^= 1
        return Examples(inputs, labels)

    return [
        Task(
            old.task_id, old.classes, old.num_train,
            functools.partial(examples, "train", number),
            functools.partial(examples, "test", number),
        )
        for number, old in enumerate(stream)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folder of a call that has ended."""
    folder = tmp_path_factory.mktemp("ended")
    nccl_tf.learn(small(), tiny_stream(), **SETTINGS, backup_dir=folder)
    return folder


@pytest.mark.parametrize(
    ("task", "part", "column"), [(0, "train", "inputs"), (1, "test", "labels")]
)
def test_a_backup_of_other_data_is_refused(task, part, column, ended):
    stream = changed(tiny_stream(), task, part, column)
    with pytest.raises(UserError, match="give another backup_dir"):
        nccl_tf.learn(small(), stream, **SETTINGS, backup_dir=ended)


@pytest.mark.parametrize(
    "other",
    [
        {"activation": "tanh"}, {"metrics": ()},
        {"loss": keras.losses.CategoricalFocalCrossentropy(from_logits=True)},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_a_backup_of_another_model_is_refused(other, ended):
    with pytest.raises(UserError, match="give another backup_dir"):
        nccl_tf.learn(small(**other), tiny_stream(), **SETTINGS, backup_dir=ended)


def test_the_same_call_is_known_again_by_what_it_is(ended):
    """Whatever the names that Keras counts up."""
    same, model, seen = changed(tiny_stream(), None, None, None), small(), []
    assert model.name != small().name
    trains = keras.callbacks.LambdaCallback(on_train_begin=seen.append)
    nccl_tf.learn(model, same, **SETTINGS, callbacks=[trains], backup_dir=ended)
    assert not seen


def test_an_ended_call_with_other_first_weights_is_refused(ended):
    model = small(seed=1)
    before = weights(model)
    with pytest.raises(UserError, match=r"began with other weights .* give another backup_dir"):
        nccl_tf.learn(model, tiny_stream(), **SETTINGS, backup_dir=ended)
    assert_equal(weights(model), before)


def test_an_ended_call_with_another_memory_is_refused(ended):
    model, (task, *_) = small(), tiny_stream()
    model.remember(*task.train)
    with pytest.raises(UserError, match=r"another memory .* give another backup_dir"):
        nccl_tf.learn(model, tiny_stream(), **SETTINGS, backup_dir=ended)


def test_an_ended_call_knows_its_own_model_again(ended, caplog):
    model = small()
    for _ in range(2):  # with the weights of its beginning, and of its end
        nccl_tf.learn(model, tiny_stream(), **SETTINGS, backup_dir=ended)
    assert "other weights" not in caplog.text


def test_a_call_that_resumes_says_that_its_weights_are_replaced(tmp_path, caplog, undisturbed):
    with pytest.raises(Killed):
        learn(tmp_path, Kill(2))
    learn(tmp_path, Kill(0))
    assert "other weights" not in caplog.text
    folder = tmp_path / "again"
    with pytest.raises(Killed):
        learn(folder, Kill(2))
    model = again()
    for variable in model.trainable_variables:
        variable.assign(tf.zeros_like(variable.value))
    with pytest.raises(Killed):
        learn(folder, Kill(2), model=model)
    assert "give another backup_dir to begin with its own" in caplog.text
    # The backup is still that of its first weights.
    caplog.clear()
    assert_equal(state(learn(folder, Kill(0))[0]), undisturbed[0])
    assert "other weights" not in caplog.text


def test_a_folder_in_use_is_refused(tmp_path):
    held = pytest.raises(UserError, match=r"process .* is running .*choose another backup_dir")
    with lock_folder(tmp_path), held:
        learn(tmp_path)


@pytest.mark.parametrize("room", [0, 100], ids=["for nothing", "for the lock alone"])
def test_a_full_disk_is_told_in_the_words_of_the_call(tmp_path, full_disk, room):
    with pytest.raises(UserError, match=r"free space.*backup_dir") as error, full_disk(room):
        learn(tmp_path)
    assert "running" not in str(error.value) and "--output_dir" not in str(error.value)
