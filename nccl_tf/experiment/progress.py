"""What a run prints while it trains: a line a task, and one now and then inside a long task."""

import time
from collections.abc import Callable

import keras

QUIET_SECONDS = 10.0


class Progress(keras.callbacks.Callback):
    """Prints progress of one seed.

    Args:
        task_steps: Steps of each task, or of all tasks together.
        batch_steps: Steps in one call of the graph.
        say: Takes a line.
        clock: Seconds from any origin.
        joint: Whether all tasks are learned at once.
    """

    def __init__(
        self,
        task_steps: list[int],
        batch_steps: int = 1,
        say: Callable[[str], None] = lambda line: print(line, flush=True),
        clock: Callable[[], float] = time.perf_counter,
        joint: bool = False,
    ) -> None:
        super().__init__()
        self._joint = joint
        self._task_steps, self._batch_steps = task_steps, batch_steps
        self._say, self._clock = say, clock
        self._start = self._last = self._fit_start = clock()
        self._done = self._in_task = self._task = self._earlier = self._fit_from = 0

    def go_on(self, task: int, steps: int) -> None:
        """Begin in mid-run: `task` tasks, and `steps` steps of the next one, are done already."""
        self._task, self._in_task = task, steps
        self._earlier = self._done = sum(self._task_steps[:task])
        self._earlier += steps
        if task < len(self._task_steps):
            self._say(f"going on from step {steps} of {self._name(task)}")

    def on_train_begin(self, logs: dict | None = None) -> None:
        """A task begins, or goes on."""
        self._fit_start = self._last = self._clock()
        self._fit_from = self._in_task

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Print where the task stands, if nothing was printed for a while."""
        left = self._task_steps[self._task] - self._in_task
        self._in_task += min(self._batch_steps, left)
        now = self._clock()
        if now - self._last >= QUIET_SECONDS:
            self._last = now
            speed = (self._in_task - self._fit_from) / (now - self._fit_start)
            self._say(
                f"  {self._name(self._task)}: step {self._in_task} of "
                f"{self._task_steps[self._task]}, {speed:.0f} steps/s, {self._time_left()} left"
            )

    def task_done(self, average: float, steps: int, seconds: float) -> None:
        """Print the line of a task that is trained and evaluated.

        Args:
            average: Mean accuracy over the tasks so far, a fraction.
            steps: Steps of this task that this process made.
            seconds: Time that they took, without tracing and compiling.
        """
        name = self._name(self._task)
        self._done += self._task_steps[self._task]
        self._in_task = 0
        self._task += 1
        self._say(
            f"{name}: accuracy so far {100 * average:.1f} %, "
            f"{steps / max(seconds, 1e-9):.0f} steps/s, {self._time_left()} left"
        )

    def _name(self, task: int) -> str:
        return "all tasks" if self._joint else f"task {task + 1}/{len(self._task_steps)}"

    def _time_left(self) -> str:
        done = self._done + self._in_task
        left = sum(self._task_steps) - done
        seconds = (self._clock() - self._start) * left / max(done - self._earlier, 1)
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
