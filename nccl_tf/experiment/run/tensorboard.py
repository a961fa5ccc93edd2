"""TensorBoard events of a run: values of its steps, and accuracies after each task."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import nccl_tf.metrics as metrics
from nccl_tf.session.evaluation import Evaluation
from nccl_tf.session.state import Place, SessionCallback


def events_folder(folder: Path, goes_on: bool) -> Path:
    """The folder of a run's events: the latest if the run resumes, else one named by the time.

    Args:
        folder: Of all events of the run.
        goes_on: Whether the run has checkpoints.
    """
    earlier = sorted(path.name for path in folder.glob("*")) if goes_on else []
    return folder / (earlier[-1] if earlier else f"{datetime.now():%Y%m%d-%H%M%S-%f}")


class TensorBoardLog(SessionCallback):
    """Writes event files of a run: a folder for the steps of each task, and one for the accuracies.

    Args:
        folder: Takes the folders `task1`, `task2`, ... and `tasks`.
        evaluation: The matrix that is filled.
        every: Steps between two values.
        steps: Batches in an epoch of each task.
        epochs: Epochs of each task.
    """

    def __init__(
        self, folder: Path, evaluation: Evaluation, every: int, steps: Sequence[int], epochs: int
    ):
        super().__init__()
        self._folder, self._evaluation, self._every = folder, evaluation, every
        self._steps, self._epochs = steps, epochs
        self._begun, self._before, self._own_every = Place(), 0, every
        self._writer: Any = None
        self.update_freq = every
        """Read by `fit`, whose calls of the graph end where a value is written."""

    def before_task(self, place: Place) -> None:
        """Begin the folder of a task: batches are counted from 0 in each one."""
        self._begun, steps = place, self._steps[place.task]
        self.update_freq = min(self._every, self._epochs * steps)
        # A task of fewer steps has a value too: that of its end.
        left = (self._epochs - place.epoch) * steps - place.step
        self._own_every = min(self._every, max(left, 1))

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Open the events of the task."""
        folder = self._folder / f"task{self._begun.task + 1}" / "train"
        self._writer = tf.summary.create_file_writer(str(folder))

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note how many steps of the task are done."""
        first = self._begun.step if epoch == self._begun.epoch else 0
        self._before = epoch * self._steps[self._begun.task] + first

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the means of the epoch so far, every so many batches."""
        if (batch + 1) % self._own_every == 0:
            with self._writer.as_default(step=self._before + batch + 1):
                for name, value in (logs or {}).items():
                    tf.summary.scalar(f"batch_{name}", value)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Close the events of the task."""
        self._writer.close()

    def after_task(self, row: int) -> None:
        """Write the accuracies after a task, at the step number of tasks learned.

        The tags are `accuracy/task1`, `accuracy/task2`, ..., `average_accuracy` and, from the
        second task on, `forgetting`; all are fractions.
        """
        matrix = self._evaluation.matrix
        values = {f"accuracy/task{j + 1}": matrix[row, j] for j in range(row + 1)}
        values["average_accuracy"] = float(np.mean(matrix[row, : row + 1]))
        values["forgetting"] = metrics.forgetting(matrix[: row + 1, : row + 1])
        writer = tf.summary.create_file_writer(str(self._folder / "tasks"))
        with writer.as_default(step=row + 1):
            for name, value in values.items():
                if np.isfinite(value):
                    tf.summary.scalar(name, value)
        writer.close()
