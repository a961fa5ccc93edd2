"""The record of the steps of a run: rows of a CSV file."""

import csv
import math
import os
import pathlib

import keras

from nccl_tf.errors import UserError, translate_os_error


class StepRecord(keras.callbacks.Callback):
    """Writes a row per window of steps: mean, minimum and maximum of every quantity of the learner.

    The rows are collected in the graph, so they are the same whatever `steps_per_execution` is; the
    cumulative columns are exact sums over all steps after the first task. What a window did not
    measure is left empty. The file goes on over several `fit` calls of one learner.

    Args:
        path: The CSV file; an older one is replaced.
        every: Steps in a window.

    Raises:
        UserError: During training, where the file has vanished or cannot be written.
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

    def state(self) -> dict[str, int]:
        """How far the file is written, for a checkpoint."""
        return {
            "windows": self._windows_written,
            "bytes": self.path.stat().st_size if self._started else 0,
        }

    def restore(self, state: dict[str, int]) -> None:
        """Cut the file back to where a checkpoint was taken, and go on from there.

        Raises:
            UserError: The file is gone or shorter than it was.
        """
        self._windows_written, self._started = state["windows"], state["bytes"] > 0
        if not self._started:
            return
        if not self.path.is_file() or self.path.stat().st_size < state["bytes"]:
            raise UserError(
                f"{self.path} is gone or shorter than when the checkpoint was taken: restore it, "
                "or start again with --overwrite"
            )
        os.truncate(self.path, state["bytes"])

    def _flush(self, whole: bool) -> None:
        rows = self.model.step_log.take(self._windows_written, whole)
        cells = [["" if math.isnan(value) else f"{value:.9g}" for value in row] for row in rows]
        advice = "make room or restore the file; the run goes on from its last checkpoint"
        # "r+" rather than "a", which would make a vanished file anew, without its beginning.
        with translate_os_error(self.path, advice), self.path.open("r+", newline="") as file:
            file.seek(0, os.SEEK_END)
            csv.writer(file).writerows(cells)
        self._windows_written += len(rows)
        self._steps_since_flush = 0
