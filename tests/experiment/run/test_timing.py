"""The clocks of a run, on a clock that the test turns."""

import io
from types import SimpleNamespace

import numpy as np
import pytest

from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.progress import QUIET_SECONDS, ProgressReport
from nccl_tf.experiment.run.timing import TrainClock
from nccl_tf.session.state import Place


class Hand:
    """A clock that moves when told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Counted:
    """What the callbacks ask a learner for."""

    def __init__(self):
        self.execution = SimpleNamespace(made=0)


def test_tracing_is_booked_as_compiling():
    hand = Hand()
    diagnostics = Hand()
    clock = TrainClock(hand, excluded=diagnostics)
    model = Counted()
    clock.set_model(model)
    clock.before_task(Place())
    hand.now += 2.0  # the graph is built
    clock.on_train_begin()
    calls = [(5.0, 1, 1), (0.1, 0, 0), (0.3, 0, 0), (0.2, 0, 0), (0.7, 0, 1), (0.7, 1, 0)]
    for batch, (seconds, traces, programs) in enumerate(calls):
        clock.on_train_batch_begin(batch)
        hand.now += seconds
        model.execution.made += traces + programs
        clock.on_train_batch_end(batch)
    hand.now += 3.0
    diagnostics.now += 3.0  # they do not count as training
    clock.after_training()
    assert clock.compile_seconds == pytest.approx(2.0 + 4.8 + 0.5 + 0.5)
    assert clock.train_seconds == pytest.approx(9.0 - 7.8)


def progress_of(steps, epochs, hand):
    """The progress of a run whose first epoch has begun, and what it prints."""
    stream = io.StringIO()
    evaluation = SimpleNamespace(matrix=np.array([[0.25]]), mean_so_far=lambda row: 0.5)
    made = ProgressReport(steps, Console("plain", stream), evaluation, epochs, clock=hand)
    made.set_model(Counted())
    made.before_task(Place())
    made.on_train_begin()
    made.on_epoch_begin(0)
    return made, stream


def call(progress, hand, batch, seconds, traces=0):
    progress.on_train_batch_begin(batch)
    hand.now += seconds
    progress.model.execution.made += traces
    progress.on_train_batch_end(batch)


def test_progress_prints_lines_by_task_and_by_time():
    """A line a task, and one inside a long task; a speed is that of calls that traced nothing."""
    hand = Hand()
    progress, stream = progress_of([4, 4], 2, hand)
    call(progress, hand, 0, QUIET_SECONDS, traces=1)
    call(progress, hand, 1, 0.1)
    progress.on_epoch_begin(1)
    call(progress, hand, 1, QUIET_SECONDS + 0.1)
    progress.after_training()
    hand.now += 5.0  # the evaluation
    progress.after_task(0)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("task 1/2: step 1 of 4, 1 min 10 s left")
    assert "task 1/2: step 4 of 4, 0.29 steps/s" in lines[1]
    assert lines[2] == "task 1/2: accuracy so far 50.0 %, 0.29 steps/s, 25 s left"


def test_a_task_whose_calls_all_traced_tells_no_speed():
    """As a short first task, beside whose figure that of the next one would be a riddle."""
    hand = Hand()
    progress, stream = progress_of([40, 40], 1, hand)
    call(progress, hand, 39, 2.0, traces=1)
    progress.after_training()
    progress.after_task(0)
    assert stream.getvalue() == "task 1/2: accuracy so far 50.0 %, 2 s left\n"


def test_a_call_that_is_longer_than_an_epoch_counts_the_epoch_s_steps():
    hand = Hand()
    progress, stream = progress_of([12], 3, hand)
    for epoch in range(3):
        progress.on_epoch_begin(epoch)
        call(progress, hand, 99, 2 * QUIET_SECONDS)
    said = [line.split(", ")[0].split(": ")[-1] for line in stream.getvalue().splitlines()]
    assert said == ["step 4 of 12", "step 8 of 12", "step 12 of 12"]
    assert "0.2 steps/s" in stream.getvalue() and " 0 steps/s" not in stream.getvalue()


def test_the_speed_is_that_of_plain_calls():
    hand = Hand()
    progress, stream = progress_of([40, 40], 1, hand)
    call(progress, hand, 19, 50.0, traces=1)
    call(progress, hand, 39, 0.5)
    progress.after_training()
    progress.after_task(0)
    assert "40 steps/s" in stream.getvalue()
