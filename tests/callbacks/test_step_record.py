"""steps.csv has every row, and each is right, however a run is cut into pieces."""

import functools
import json
from pathlib import Path

import keras
import pytest

import nccl_tf
from nccl_tf.callbacks import StepRecord
from nccl_tf.errors import UserError
from nccl_tf.learner.options.step_log import StepLog
from nccl_tf.records.checkpoints import variables_to_arrays
from tests.tiny import renewed, tiny_batches, tiny_network


def made(steps=4):
    learner = nccl_tf.Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1), steps_per_execution=steps)
    return learner


@functools.cache
def _built():
    learner = made()
    learner.record_steps(3)
    return learner, variables_to_arrays(learner.state_variables)


def again():
    """What `made` makes, for windows of 3: one learner in its first state, whose graph is built."""
    return renewed(*_built())


def fit(learner, *records, count=20, seed=0):
    """`count` steps."""
    learner.fit(
        tiny_batches(0, 5 * count, seed=seed), task_id=0, end_task=False, shuffle=False, verbose=0,
        callbacks=list(records),
    )  # fmt: skip


class StopAfter(keras.callbacks.Callback):
    """Ends a fit in its midst, without its end."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 >= self.steps:
            raise InterruptedError


def rows(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]


def steps(path: Path) -> list[int]:
    return [int(row[0]) for row in rows(path)[1:]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The rows of 200 steps, one after another, from a learner that nothing interrupts."""
    path = tmp_path_factory.mktemp("undisturbed") / "steps.csv"
    learner, record = made(1), StepRecord(path, every=1)
    for seed in range(4):
        fit(learner, record, count=50, seed=seed)
    return path


def test_a_call_of_many_windows_loses_no_row(tmp_path, undisturbed):
    learner, record = made(50), StepRecord(tmp_path / "steps.csv", every=1)
    for seed in range(4):
        fit(learner, record, count=50, seed=seed)
    assert record.path.read_bytes() == undisturbed.read_bytes()


def test_a_new_record_of_a_trained_learner_has_true_rows(tmp_path):
    learner = again()
    first = StepRecord(tmp_path / "first.csv", every=3)
    fit(learner, first)
    second = StepRecord(tmp_path / "second.csv", every=3)
    fit(learner, first, second, count=300)
    assert steps(first.path) == list(range(3, 321, 3))
    assert rows(second.path)[1:] == rows(first.path)[7:]


def test_windows_of_two_lengths_are_refused(tmp_path):
    learner = made()
    one, other = (
        StepRecord(tmp_path / "one.csv", every=3),
        StepRecord(tmp_path / "two.csv", every=5),
    )
    with pytest.raises(UserError, match="another callback logs windows of 5"):
        fit(learner, one, other)
    fit(learner, other)
    with pytest.raises(UserError, match="a StepRecord of its own"):
        fit(made(), other, count=1)


def interrupted(learner, record, every=None, steps_per_execution=4):
    """The learner and record that go on from a checkpoint of these."""
    state = json.loads(json.dumps([learner.option(StepLog).state(), record.state()]))
    other = made(steps_per_execution)
    other.record_steps(every or record.every)
    other.network.set_weights(learner.network.get_weights())
    other.option(StepLog).restore(state[0])
    resumed = StepRecord(record.path, every=every or record.every)
    resumed.set_model(other)
    resumed.restore(state[1])
    return other, resumed


def test_many_interruptions_leave_every_row_right(tmp_path):
    def path_of(name, stops):
        learner, record = again(), StepRecord(tmp_path / name, every=3)
        for seed, count in enumerate((25, 1, 60)):
            if not stops:
                fit(learner, record, count=count, seed=seed)
                continue
            with pytest.raises(InterruptedError):
                fit(learner, record, StopAfter(count), count=count, seed=seed)
            learner, record = interrupted(learner, record, None, 2 + 4 * seed)
        record.finish()
        return record.path

    assert path_of("cut.csv", True).read_bytes() == path_of("whole.csv", False).read_bytes()


def test_rows_of_another_length_follow_on(tmp_path, undisturbed):
    learner, record = made(), StepRecord(tmp_path / "steps.csv", every=20)
    fit(learner, record, count=50)
    learner, record = interrupted(learner, record, every=7)
    fit(learner, record, count=50, seed=1)
    record.finish()
    assert steps(record.path) == [20, 40, 50, 56, 63, 70, 77, 84, 91, 98, 100]
    losses = [float(row[1]) for row in rows(undisturbed)[1:]]
    means = [float(row[1]) for row in rows(record.path)[1:]]
    ends = steps(record.path)
    for mean, begin, end in zip(means, [0, *ends[:-1]], ends, strict=True):
        assert mean == pytest.approx(sum(losses[begin:end]) / (end - begin), rel=1e-5)


def test_no_row_without_steps_where_its_length_changes_twice(tmp_path):
    every = 7
    learner, record = made(), StepRecord(tmp_path / "steps.csv", every=20)
    fit(learner, record, count=48)
    learner, record = interrupted(learner, record, every=every)
    learner, record = interrupted(learner, record, every=20)
    record.finish()
    assert steps(record.path) == [20, 40, 48]


def state_after(folder, count=20):
    learner, record = again(), StepRecord(folder / "steps.csv", every=3)
    fit(learner, record, count=count)
    return learner, record, record.state()


def go_on(learner, record, state):
    resumed = StepRecord(record.path, every=3)
    resumed.set_model(learner)
    resumed.restore(state)
    return resumed


def test_what_followed_the_checkpoint_is_written_again(tmp_path):
    learner, record, state = state_after(tmp_path)
    whole = record.path.read_bytes()
    record.path.write_bytes(whole + b"and more")
    go_on(learner, record, state)
    assert record.path.read_bytes() == whole
    record.path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"steps\.csv is missing, or was cut"):
        go_on(learner, record, state)


def test_two_that_write_one_file_are_told(tmp_path):
    learner, record, _ = state_after(tmp_path)
    with record.path.open("a") as file:
        file.write("30,1,1,1\r\n")
    with pytest.raises(UserError, match="was changed while a run wrote it"):
        fit(learner, record)


def test_a_link_is_replaced_and_what_it_names_is_not_written(tmp_path):
    target, path = tmp_path / "precious", tmp_path / "steps.csv"
    target.write_text("mine")
    path.symlink_to(target)
    state_after(tmp_path)
    assert not path.is_symlink() and len(rows(path)) == 7
    assert target.read_text() == "mine"
