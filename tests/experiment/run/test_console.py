"""The four modes of output, with colours on a terminal only."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest

from nccl_tf.experiment.run.console import Console, describe_speed
from nccl_tf.experiment.run.progress import REDRAW_SECONDS, ProgressReport
from nccl_tf.session.state import Place


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def output(mode, terminal=False):
    """All that a run of two tasks and a summary print."""
    stream, now = Stream(terminal), iter(range(0, 1000, 11))
    console = Console(mode, stream)
    matrix = np.array([[0.5, 0.0], [0.75, 0.25]])
    evaluation = SimpleNamespace(matrix=matrix, mean_so_far=lambda row: 0.5)
    progress = ProgressReport([4, 4], console, evaluation, clock=lambda: next(now))
    progress.set_model(SimpleNamespace(execution=SimpleNamespace(made=0)))
    console.say("summary")
    for task in range(2):
        progress.before_task(Place(task))
        progress.on_train_begin()
        progress.on_epoch_begin(0)
        for batch in (1, 3):  # calls of two steps in 11 seconds
            progress.on_train_batch_begin(batch)
            progress.on_train_batch_end(batch)
        progress.after_training()
        progress.after_task(task)
    return stream.getvalue()


def test_the_default_is_a_bar_on_a_terminal_and_plain_elsewhere(monkeypatch):
    assert Console(None, Stream(True)).mode == "bar"
    assert Console(None, Stream(False)).mode == "plain"
    monkeypatch.setenv("TERM", "dumb")
    assert Console(None, Stream(True)).mode == "plain"


def test_json_prints_an_object_a_line_and_nothing_else():
    events = [json.loads(line) for line in output("json").splitlines()]
    assert [(e["event"], e["task"]) for e in events] == [
        ("step", 1), ("step", 1), ("task", 1), ("step", 2), ("step", 2), ("task", 2)
    ]  # fmt: skip
    assert events[2]["average_accuracy"] == 0.5 and events[2]["steps_per_second"] == 0.18
    assert events[-1]["seconds_left"] == 0 and events[-1]["tasks"] == 2


def test_plain_prints_no_control_characters():
    text = output("plain")
    assert text.replace("\n", "").isprintable()
    assert "task 1/2: step 2 of 4" in text and "task 2/2: accuracy so far 50.0 %" in text


def test_the_bar_is_drawn_over_and_leaves_a_line_a_task():
    assert REDRAW_SECONDS < 11
    text = output("bar", terminal=True)
    lines = [line.rpartition("\r\x1b[2K")[2] for line in text.split("\n")[:-1]]
    assert len(lines) == 3 and lines[0] == "summary"
    assert lines[1].startswith("task 1/2: accuracy so far")
    assert "task 1/2 [############............]  50%" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("speed", "said"), [(0.37, "0.37"), (1.52, "1.5"), (38.4, "38")])
def test_slow_steps_have_two_digits(speed, said):
    values = {"steps_per_second": speed, "seconds_left": 85}
    assert describe_speed(values) == f"{said} steps/s, 1 min 25 s left"
