"""Progress of a run: a line per task, and a bar or lines within a task."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from nccl_tf.experiment.run.console import Console, describe_speed, task_name
from nccl_tf.session.evaluation import Evaluation
from nccl_tf.session.state import Place, SessionCallback

QUIET_SECONDS = 10.0
"""Time between two lines within a task."""
REDRAW_SECONDS = 0.1
"""Time between two updates of the bar."""
_BAR_WIDTH = 24


class ProgressReport(SessionCallback):
    """Reports the progress of one seed.

    Args:
        task_steps: Steps of each task; with `joint`, one entry for all tasks.
        console: Prints the reports.
        evaluation: The matrix that is filled.
        epochs: Epochs of each task.
        clock: Returns seconds from any origin.
        joint: Whether all tasks are learned jointly.
    """

    def __init__(
        self,
        task_steps: Sequence[int],
        console: Console,
        evaluation: Evaluation,
        epochs: int = 1,
        clock: Callable[[], float] = time.perf_counter,
        joint: bool = False,
    ) -> None:
        super().__init__()
        self._joint = joint
        self._task_steps, self._epochs = list(task_steps), epochs
        self._evaluation = evaluation
        self._console, self._clock = console, clock
        self._start = self._last = self._drawn = clock()
        self._begun = Place()
        self._call_start, self._made = clock(), 0
        self._plain_seconds, self._plain_steps = 0.0, 0
        self._done = self._in_task = self._task = self._earlier = 0
        self._epoch_from = self._epoch_to = 0

    def on_resume(self, place: Place) -> None:
        """Say where the run resumes."""
        self._task = place.task
        self._earlier = self._done = sum(self._task_steps[: place.task])
        if place.task < len(self._task_steps):
            steps = self._steps_to(place)
            self._earlier += steps
            self._console.say(f"going on from step {steps} of {self._name(place.task)}")
            self._console.event("resumed", task=place.task + 1, step=steps)

    def before_task(self, place: Place) -> None:
        """Count from the step that the task begins or resumes with."""
        self._begun = place
        self._in_task = self._steps_to(place)
        self._plain_seconds, self._plain_steps = 0.0, 0

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Start the time between lines."""
        self._last = self._drawn = self._clock()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Count batches from the first one of the epoch that is trained."""
        first = self._begun.step if epoch == self._begun.epoch else 0
        self._epoch_from = self._steps_to(self._begun._replace(epoch=epoch, step=first))
        self._epoch_to = self._steps_to(self._begun._replace(epoch=epoch + 1, step=0))

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Start the time of a call."""
        self._made, self._call_start = self.model.execution.made, self._clock()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Update the bar, and print a line if the last one is `QUIET_SECONDS` old."""
        # Keras counts whole calls of the graph, also where an epoch ends amid one.
        before, now = self._in_task, self._clock()
        self._in_task = min(self._epoch_from + batch + 1, self._epoch_to)
        if self.model.execution.made == self._made:
            self._plain_seconds += now - self._call_start
            self._plain_steps += self._in_task - before
        if now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._draw()
        if now - self._last >= QUIET_SECONDS:
            self._last = now
            self._report_step()

    def after_task(self, row: int) -> None:
        """Print the line of a task after training and evaluation."""
        name, task = self._name(self._task), self._task
        speed = self._speed()
        self._done += self._task_steps[task]
        self._in_task = 0
        self._task += 1
        values = self._values(
            task, speed,
            average_accuracy=self._evaluation.mean_so_far(row),
            accuracy=float(self._evaluation.matrix[row, row]),
        )  # fmt: skip
        self._console.task(name, values)

    def _steps_to(self, place: Place) -> int:
        """Steps of the task that are done at a place in it."""
        return place.epoch * (self._task_steps[place.task] // self._epochs) + place.step

    def _draw(self) -> None:
        share = self._in_task / self._task_steps[self._task]
        filled = round(_BAR_WIDTH * share)
        self._console.draw(
            f"{self._name(self._task)} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {share:4.0%} "
            f"{describe_speed(self._values(self._task, self._speed()))}"
        )

    def _report_step(self) -> None:
        total = self._task_steps[self._task]
        values = self._values(self._task, self._speed(), step=self._in_task, task_steps=total)
        self._console.step(self._name(self._task), values)

    def _values(self, task: int, speed: float | None, **values: float | None) -> dict[str, Any]:
        return {
            "task": task + 1, "tasks": len(self._task_steps), **values,
            "steps_per_second": speed, "seconds_left": round(self._seconds_left(), 1),
        }  # fmt: skip

    def _speed(self) -> float | None:
        """Steps a second in the task's calls that traced and compiled nothing, if there is one."""
        seconds = self._plain_seconds
        return round(self._plain_steps / seconds, 2) if seconds > 0 else None

    def _name(self, task: int) -> str:
        return task_name(task + 1, len(self._task_steps), self._joint)

    def _seconds_left(self) -> float:
        done = self._done + self._in_task
        left = sum(self._task_steps) - done
        return (self._clock() - self._start) * left / max(done - self._earlier, 1)
