"""Console output of a run: text, JSON lines, or nothing."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

_CLEAR_LINE = "\r\x1b[2K"
_CODES = {"bold": "1", "green": "32"}


class Console:
    """Writes to a stream in one of four modes.

    "bar": text, followed by a line that is redrawn in place; "plain": text only; "json": one object
    per line and no text, for scripts; "none": nothing.

    Args:
        mode: One of `MODES`; None for "bar" on a terminal and "plain" elsewhere.
        stream: The stream to write to; standard output by default.
    """

    def __init__(self, mode: str | None = None, stream: TextIO | None = None):
        self._stream = sys.stdout if stream is None else stream
        terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self.mode = mode or ("bar" if terminal else "plain")
        self._coloured = terminal and not os.environ.get("NO_COLOR")
        self._drawn = False

    def say(self, text: str) -> None:
        """Print text, replacing a drawn line; "bar" and "plain" only."""
        if self.mode in ("bar", "plain"):
            self._write(f"{text}\n")

    def draw(self, line: str) -> None:
        """Draw a line that the next output replaces; "bar" only."""
        if self.mode == "bar":
            self._write(line)
            self._drawn = True

    def event(self, kind: str, **values: Any) -> None:
        """Print a JSON object with "event" and the values; "json" only."""
        if self.mode == "json":
            self._write(json.dumps({"event": kind, **values}) + "\n")

    def task(self, name: str, values: Mapping[str, Any]) -> None:
        """Tell that a task is trained and evaluated.

        Args:
            name: The task's, such as "task 2/5".
            values: Of the event: task, tasks, average_accuracy (None where not all tasks so far
                were evaluated), accuracy (on this task), steps_per_second, seconds_left.
        """
        average = values["average_accuracy"]
        what, value = ("so far", average) if average is not None else ("on it", values["accuracy"])
        accuracy = self.styled(f"{100 * value:.1f} %", "green")
        self.say(f"{name}: accuracy {what} {accuracy}, {describe_speed(values)}")
        self.event("task", **values)

    def step(self, name: str, values: Mapping[str, Any]) -> None:
        """Tell how far a task has come; a person reads it in "plain" only.

        Args:
            name: The task's, such as "task 2/5".
            values: Of the event: task, tasks, step, task_steps, steps_per_second, seconds_left.
        """
        if self.mode == "plain":
            step = f"step {values['step']} of {values['task_steps']}"
            self.say(f"  {name}: {step}, {describe_speed(values)}")
        self.event("step", **values)

    def styled(self, text: str, style: str) -> str:
        """Style text "bold" or "green"; no effect outside a terminal or with NO_COLOR."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self._coloured else text

    def _write(self, text: str) -> None:
        if self._drawn:
            text = _CLEAR_LINE + text
            self._drawn = False
        self._stream.write(text)
        self._stream.flush()


def describe_speed(values: Mapping[str, Any]) -> str:
    """Steps per second, where they are known, and the time left, from the values of an event."""
    minutes, seconds = divmod(round(values["seconds_left"]), 60)
    left = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    speed = values["steps_per_second"]
    if speed is None:
        return f"{left} left"
    return f"{speed:{'.0f' if speed >= 10 else '.2g'}} steps/s, {left} left"


def task_name(number: int, count: int, joint: bool) -> str:
    """Name of a task in messages.

    Args:
        number: Of the task, from 1.
        count: Number of tasks.
        joint: Whether all tasks are learned at once.
    """
    return "all tasks" if joint else f"task {number}/{count}"
