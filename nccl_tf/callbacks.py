"""Keras callbacks of the library."""

import csv
import math
import pathlib

import keras


class StepRecord(keras.callbacks.Callback):
    """Writes a row per window of steps: mean, minimum and maximum of every quantity of the learner.

    The rows are collected in the graph, so they are the same whatever `steps_per_execution` is; the
    cumulative columns are exact sums over all steps after the first task. What a window did not
    measure is left empty. The file goes on over several `fit` calls of one learner.

    Args:
        path: The CSV file; an older one is replaced.
        every: Steps in a window.
    """

    def __init__(self, path: str | pathlib.Path, every: int = 50):
        super().__init__()
        self.path = pathlib.Path(path)
        self.every = int(every)
        self._windows_written = 0
        self._steps_since_flush = 0
        self._started = False

    def on_train_begin(self, logs: dict | None = None) -> None:
        log = self.model.record_steps(self.every)
        if not self._started:
            with self.path.open("w", newline="") as file:
                csv.writer(file).writerow(log.columns())
            self._started = True

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._steps_since_flush += self.model.steps_per_execution
        if self._steps_since_flush >= 32 * self.every:
            self._flush(whole=True)

    def on_train_end(self, logs: dict | None = None) -> None:
        self._flush(whole=True)

    def finish(self) -> None:
        """Write the last, incomplete window; to be called when the run has ended."""
        self._flush(whole=False)

    def _flush(self, whole: bool) -> None:
        rows = self.model.step_log.take(self._windows_written, whole)
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            for row in rows:
                writer.writerow(["" if math.isnan(value) else f"{value:.9g}" for value in row])
        self._windows_written += len(rows)
        self._steps_since_flush = 0
