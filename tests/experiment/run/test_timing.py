"""The clocks of a run, on a clock that the test turns."""

import io
from types import SimpleNamespace

import pytest

from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.progress import QUIET_SECONDS, Progress
from nccl_tf.experiment.run.timing import TrainClock


class Hand:
    """A clock that moves when told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_tracing_is_booked_as_compiling():
    hand = Hand()
    clock = TrainClock(hand)
    model = SimpleNamespace(traces=0)
    clock.set_model(model)
    clock.start()
    hand.now += 2.0  # the graph is built
    clock.on_train_begin()
    for batch, (seconds, traces) in enumerate([(5.0, 1), (0.1, 0), (0.3, 0), (0.2, 0), (1.2, 1)]):
        clock.on_train_batch_begin(batch)
        hand.now += seconds
        model.traces += traces
        clock.on_train_batch_end(batch)
    clock.stop()
    assert clock.compile_seconds == pytest.approx(2.0 + 4.8 + 1.0)
    assert clock.train_seconds == pytest.approx(8.8 - 7.8)


def test_progress_prints_lines_by_task_and_by_time():
    """A line a task, and one inside a long task."""
    hand, stream = Hand(), io.StringIO()
    progress = Progress([4, 4], Console("plain", stream), clock=hand)
    progress.on_train_begin()
    hand.now += QUIET_SECONDS
    progress.on_train_batch_end(2)
    progress.on_train_batch_end(5)
    progress.report_task(0.5, 0.25, steps=4, seconds=8.0)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "task 1/2: step 3 of 4, 0 steps/s" in lines[0]
    assert lines[1] == "task 1/2: accuracy so far 50.0 %, 0 steps/s, 10 s left"
