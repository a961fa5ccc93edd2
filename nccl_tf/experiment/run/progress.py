"""How far a run has come: a line a task, and what moves inside a task."""

import time
from collections.abc import Callable

import keras

from nccl_tf.experiment.run.console import Console, describe_speed, task_name

QUIET_SECONDS = 10.0
"""Time between two lines inside a task."""
REDRAW_SECONDS = 0.1
_BAR = 24


class Progress(keras.callbacks.Callback):
    """Tells the progress of one seed.

    Args:
        task_steps: Steps of each task, or of all tasks together.
        batch_steps: Steps in one call of the graph.
        console: Takes what there is to say.
        clock: Seconds from any origin.
        joint: Whether all tasks are learned at once.
    """

    def __init__(
        self,
        task_steps: list[int],
        batch_steps: int,
        console: Console,
        clock: Callable[[], float] = time.perf_counter,
        joint: bool = False,
    ) -> None:
        super().__init__()
        self._joint = joint
        self._task_steps, self._batch_steps = task_steps, batch_steps
        self._console, self._clock = console, clock
        self._start = self._last = self._drawn = self._fit_start = clock()
        self._done = self._in_task = self._task = self._earlier = self._fit_from = 0

    def go_on(self, task: int, steps: int) -> None:
        """Begin in mid-run: `task` tasks, and `steps` steps of the next one, are done already."""
        self._task, self._in_task = task, steps
        self._earlier = self._done = sum(self._task_steps[:task])
        self._earlier += steps
        if task < len(self._task_steps):
            self._console.say(f"going on from step {steps} of {self._name(task)}")
            self._console.event("resumed", task=task + 1, step=steps)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """A task begins, or goes on."""
        self._fit_start = self._last = self._drawn = self._clock()
        self._fit_from = self._in_task

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Draw where the task stands, and say it if nothing was said for a while."""
        left = self._task_steps[self._task] - self._in_task
        self._in_task += min(self._batch_steps, left)
        now = self._clock()
        if now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._draw(self._speed(now))
        if now - self._last >= QUIET_SECONDS:
            self._last = now
            self._inside(self._speed(now))

    def task_done(self, average: float, steps: int, seconds: float) -> None:
        """Say the line of a task that is trained and evaluated.

        Args:
            average: Mean accuracy over the tasks so far, a fraction.
            steps: Steps of this task that this process made.
            seconds: Time that they took, without tracing and compiling.
        """
        name, task = self._name(self._task), self._task
        self._done += self._task_steps[task]
        self._in_task = 0
        self._task += 1
        speed = steps / max(seconds, 1e-9)
        self._console.task(name, self._values(task, speed, average_accuracy=average))

    def _draw(self, speed: float) -> None:
        share = self._in_task / self._task_steps[self._task]
        filled = round(_BAR * share)
        self._console.draw(
            f"{self._name(self._task)} [{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%} "
            f"{describe_speed(self._values(self._task, speed))}"
        )

    def _inside(self, speed: float) -> None:
        total = self._task_steps[self._task]
        values = self._values(self._task, speed, step=self._in_task, task_steps=total)
        self._console.step(self._name(self._task), values)

    def _values(self, task: int, speed: float, **values: float) -> dict[str, float]:
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
