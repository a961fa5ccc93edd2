"""What a run shows in TensorBoard: the values of its steps, and its accuracies after each task."""

from datetime import datetime
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import nccl_tf.metrics as metrics


def events_folder(folder: Path, goes_on: bool) -> Path:
    """The folder of a run's events: the latest where the run goes on, else one named by the time.

    Args:
        folder: Of all events of the run.
        goes_on: Whether the run has checkpoints.
    """
    earlier = sorted(path.name for path in folder.glob("*")) if goes_on else []
    return folder / (earlier[-1] if earlier else f"{datetime.now():%Y%m%d-%H%M%S-%f}")


class TensorBoardLog:
    """Event files of a run: a folder for the steps of each task, and one for the accuracies.

    Args:
        folder: Takes the folders `task1`, `task2`, ... and `tasks`.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def callback(self, i: int, every: int) -> keras.callbacks.Callback:
        """Logs the metrics of steps, for one `fit`.

        Args:
            i: Number of the task, from 0.
            every: Steps between two values.
        """
        # A folder for each task: batches are counted from 0 in every fit.
        return _StepScalars(self._folder / f"task{i + 1}" / "train", every)

    def write_row(self, matrix: np.ndarray, row: int) -> None:
        """Write the accuracies after a task, at the step number of tasks learned.

        The tags are `accuracy/task1`, `accuracy/task2`, ..., `average_accuracy` and, from the
        second task on, `forgetting`; all are fractions.

        Args:
            matrix: float [tasks, tasks], the accuracy on task j after task i, NaN where unknown.
            row: Number of the task, from 0, that has ended.
        """
        values = {f"accuracy/task{j + 1}": matrix[row, j] for j in range(row + 1)}
        values["average_accuracy"] = float(np.mean(matrix[row, : row + 1]))
        values["forgetting"] = metrics.forgetting(matrix[: row + 1, : row + 1])
        writer = tf.summary.create_file_writer(str(self._folder / "tasks"))
        with writer.as_default(step=row + 1):
            for name, value in values.items():
                if np.isfinite(value):
                    tf.summary.scalar(name, value)
        writer.close()


class _StepScalars(keras.callbacks.Callback):
    """Writes the means so far after every so many batches; Keras's counts calls, not batches."""

    def __init__(self, folder: Path, every: int):
        super().__init__()
        self._writer = tf.summary.create_file_writer(str(folder))
        self.update_freq = every

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if (batch + 1) % self.update_freq == 0:
            with self._writer.as_default(step=batch + 1):
                for name, value in (logs or {}).items():
                    tf.summary.scalar(f"batch_{name}", value)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._writer.close()
