"""Progress of a run: a line per task, and a bar or lines within a task."""

import time
from collections.abc import Callable
from typing import Any

import keras

from nccl_tf.experiment.run.console import Console, describe_speed, task_name

QUIET_SECONDS = 10.0
"""Time between two lines within a task."""
REDRAW_SECONDS = 0.1
"""Time between two updates of the bar."""
_BAR_WIDTH = 24


class Progress(keras.callbacks.Callback):
    """Reports the progress of one seed.

    Args:
        task_steps: Steps of each task; with `joint`, one entry for all tasks.
        console: Prints the reports.
        clock: Returns seconds from any origin.
        joint: Whether all tasks are learned jointly.
    """

    def __init__(
        self,
        task_steps: list[int],
        console: Console,
        clock: Callable[[], float] = time.perf_counter,
        joint: bool = False,
    ) -> None:
        super().__init__()
        self._joint = joint
        self._task_steps = task_steps
        self._console, self._clock = console, clock
        self._start = self._last = self._drawn = self._fit_start = clock()
        self._done = self._in_task = self._task = self._earlier = self._fit_from = 0

    def resume(self, task: int, steps: int) -> None:
        """Start from a checkpoint after `task` tasks and `steps` steps of the next task."""
        self._task, self._in_task = task, steps
        self._earlier = self._done = sum(self._task_steps[:task])
        self._earlier += steps
        if task < len(self._task_steps):
            self._console.say(f"going on from step {steps} of {self._name(task)}")
            self._console.event("resumed", task=task + 1, step=steps)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Start measuring the speed."""
        self._fit_start = self._last = self._drawn = self._clock()
        self._fit_from = self._in_task

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Update the bar, and print a line if the last one is `QUIET_SECONDS` old."""
        # Keras counts whole calls of the graph.
        self._in_task = min(self._fit_from + batch + 1, self._task_steps[self._task])
        now = self._clock()
        if now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._draw(self._speed(now))
        if now - self._last >= QUIET_SECONDS:
            self._last = now
            self._report_step(self._speed(now))

    def report_task(
        self, average: float | None, accuracy: float, steps: int, seconds: float
    ) -> None:
        """Print the line of a task after training and evaluation.

        Args:
            average: Mean accuracy over the tasks so far, a fraction; None where not measured.
            accuracy: On this task.
            steps: Steps of this task in this process.
            seconds: Time of these steps, without tracing and compiling.
        """
        name, task = self._name(self._task), self._task
        self._done += self._task_steps[task]
        self._in_task = 0
        self._task += 1
        speed = steps / max(seconds, 1e-9)
        values = self._values(task, speed, average_accuracy=average, accuracy=accuracy)
        self._console.task(name, values)

    def _draw(self, speed: float) -> None:
        share = self._in_task / self._task_steps[self._task]
        filled = round(_BAR_WIDTH * share)
        self._console.draw(
            f"{self._name(self._task)} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {share:4.0%} "
            f"{describe_speed(self._values(self._task, speed))}"
        )

    def _report_step(self, speed: float) -> None:
        total = self._task_steps[self._task]
        values = self._values(self._task, speed, step=self._in_task, task_steps=total)
        self._console.step(self._name(self._task), values)

    def _values(self, task: int, speed: float, **values: float | None) -> dict[str, Any]:
        return {
            "task": task + 1, "tasks": len(self._task_steps), **values,
            "steps_per_second": round(speed, 1), "seconds_left": round(self._seconds_left(), 1),
        }  # fmt: skip

    def _speed(self, now: float) -> float:
        return (self._in_task - self._fit_from) / max(now - self._fit_start, 1e-9)

    def _name(self, task: int) -> str:
        return task_name(task + 1, len(self._task_steps), self._joint)

    def _seconds_left(self) -> float:
        done = self._done + self._in_task
        left = sum(self._task_steps) - done
        return (self._clock() - self._start) * left / max(done - self._earlier, 1)
