"""A callback that writes a learner's step statistics to a CSV file."""

import csv
import io
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import keras

from nccl_tf.errors import UserError, translate_os_error
from nccl_tf.learner.options.step_log import StepLog

_FLUSHED_WINDOWS = 32
"""So many windows are gathered before they are written; the step log holds twice as many."""


class StepRecord(keras.callbacks.Callback):
    """Writes mean, minimum and maximum of the learner's logged values, one row per window of
    steps.

    The statistics are collected in the graph, so they are the same for every `steps_per_execution`.
    The cumulative columns are exact sums over all steps after the first task. Values that a window
    did not measure are empty. The file is continued over several `fit` calls of one learner. For a
    learner that has been logged before, it begins with the window that training begins in; windows
    of a `fit` that the callback was not passed to may be missing from it, as "step" then shows.

    Args:
        path: The CSV file; an existing file, or a link, is replaced.
        every: Steps in a window.

    Raises:
        UserError: During training, if the file is missing or cannot be written, something else
            writes it, or another callback logs windows of another length.

    Example:

    ```python
    stream = nccl_tf.load_stream("permuted_digits", max_tasks=1)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = nccl_tf.Finetune(network)
    learner.compile(keras.optimizers.SGD(0.1))
    record = nccl_tf.callbacks.StepRecord("steps.csv", every=50)
    learner.fit(stream[0].train_batches(batch_size=50), callbacks=[record], shuffle=False)
    record.finish()
    ```
    """

    def __init__(self, path: str | pathlib.Path, every: int = 50):
        super().__init__()
        self.path = pathlib.Path(path)
        self.every = int(every)
        self._log: Any = None
        self._windows_written = 0
        self._steps_written = 0
        self._steps_to_write = 0
        self._last_batch = -1
        self._started = False
        self._bytes = 0

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._log = self.model.record_steps(self.every)
        if not self._started:
            self._begin()
        steps = self._steps()
        if self._windows_written > -(-steps // self.every):
            raise UserError(
                f"{self.path} has {self._windows_written} rows of {self.every} steps, but the "
                f"learner has logged {steps} steps: give each learner a StepRecord of its own, and "
                "all those of a learner the same `every`"
            )
        self._steps_to_write = steps - self._windows_written * self.every

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._last_batch = -1

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self.model.option(StepLog) is not self._log:
            raise UserError(
                f"{self.path} is to have a row for {self.every} steps, but another callback logs "
                f"windows of {self.model.option(StepLog).every}: give them the same `every`"
            )
        self._steps_to_write += batch - self._last_batch
        self._last_batch = batch
        if self._steps_to_write >= _FLUSHED_WINDOWS * self.every:
            self._flush(complete_only=True)

    def on_train_end(self, logs: dict | None = None) -> None:
        self._flush(complete_only=True)

    def finish(self) -> None:
        """Write the last, incomplete window; call it at the end of the run."""
        self._flush(complete_only=False)

    def state(self) -> dict[str, Any]:
        """Write every complete window to the disk, and return the rest for a checkpoint.

        Returns:
            JSON values: steps in a window, number of bytes of the file, and the row of the
            incomplete window.

        Raises:
            UserError: The file is missing or cannot be written, or something else writes it.
        """
        rest = ""
        if self._started:
            self._flush(complete_only=True)
            with self._open() as file:
                os.fsync(file.fileno())
            rest = _as_lines(self._rows(complete_only=False))
        return {"every": self.every, "bytes": self._bytes, "rest": rest}

    def restore(self, state: dict[str, Any]) -> None:
        """Truncate the file to its state in a checkpoint and continue from there.

        The learner's step log has to be restored before. Where rows had another number of steps,
        the incomplete one is written, and the next row continues from there.

        Args:
            state: As `state` returned it.

        Raises:
            UserError: The file is missing, or shorter than it was.
        """
        self._started = state["bytes"] > 0
        self._bytes = state["bytes"]
        self._windows_written = self._steps_written = 0
        if not self._started:
            return
        if not self.path.is_file() or self.path.stat().st_size < self._bytes:
            raise UserError(
                f"{self.path} is missing, or was cut after the checkpoint was taken: restore it, "
                "or start again with --overwrite"
            )
        with self._open() as file:
            file.truncate(self._bytes)  # What was written after the checkpoint is written again.
        self._log = self.model.option(StepLog)
        self._windows_written = self._steps() // self.every
        if state["every"] != self.every:
            self._append(state["rest"])
            self._steps_written = self._steps()

    def _steps(self) -> int:
        return int(self._log.steps.numpy())

    def _begin(self) -> None:
        with translate_os_error(self.path, "name a file in a folder that can be written"):
            # What a link names is not touched.
            self.path.unlink(missing_ok=True)
            self.path.open("xb").close()
        self._append(",".join(self._log.header()) + "\r\n")
        self._windows_written = self._steps() // self.every
        self._started = True

    def _flush(self, complete_only: bool) -> None:
        rows = self._rows(complete_only)
        if rows:
            self._append(_as_lines(rows))
            self._steps_written = int(rows[-1][0])
            self._windows_written = -(-self._steps_written // self.every)
        self._steps_to_write = self._steps() - self._windows_written * self.every

    def _rows(self, complete_only: bool) -> list[list[float]]:
        rows = self.model.option(StepLog).take(self._windows_written, complete_only)
        # The open window is empty where its steps are in a row of another length.
        return [row for row in rows if row[0] > self._steps_written]

    def _append(self, text: str) -> None:
        content = text.encode()
        with self._open() as file:
            if file.seek(0, os.SEEK_END) != self._bytes:
                raise UserError(
                    f"{self.path} was changed while a run wrote it: leave it to one run, which "
                    "resumes from its last checkpoint"
                )
            file.write(content)
        self._bytes += len(content)

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        advice = "free space or restore the file; the run resumes from its last checkpoint"
        # Not created again without its beginning.
        with translate_os_error(self.path, advice), self.path.open("r+b") as file:
            yield file


def _as_lines(rows: Iterable[Sequence[float]]) -> str:
    """Rows of numbers as lines of CSV; nan is left empty."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(
        ["" if math.isnan(value) else f"{value:.9g}" for value in row] for row in rows
    )
    return text.getvalue()
