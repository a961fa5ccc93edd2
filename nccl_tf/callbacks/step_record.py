"""A callback that writes a learner's step statistics to a CSV file."""

import csv
import math
import os
import pathlib

import keras

from nccl_tf.errors import UserError, translate_os_error


class StepRecord(keras.callbacks.Callback):
    """Writes mean, minimum and maximum of the learner's logged values, one row per window of steps.

    The statistics are collected in the graph, so they are the same for every `steps_per_execution`.
    The cumulative columns are exact sums over all steps after the first task. Values that a window
    did not measure are empty. The file is continued over several `fit` calls of one learner.

    Args:
        path: The CSV file; an existing file is replaced.
        every: Steps in a window.

    Raises:
        UserError: During training, if the file is missing or cannot be written.

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
        self._windows_written = 0
        self._steps_since_flush = 0
        self._last_batch = -1
        self._started = False

    def on_train_begin(self, logs: dict | None = None) -> None:
        log = self.model.record_steps(self.every)
        if not self._started:
            with self.path.open("w", newline="") as file:
                csv.writer(file).writerow(log.columns())
            self._started = True

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._last_batch = -1

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._steps_since_flush += batch - self._last_batch
        self._last_batch = batch
        if self._steps_since_flush >= 32 * self.every:
            self._flush(complete_only=True)

    def on_train_end(self, logs: dict | None = None) -> None:
        self._flush(complete_only=True)

    def finish(self) -> None:
        """Write the last, incomplete window; call it at the end of the run."""
        self._flush(complete_only=False)

    def state(self) -> dict[str, int]:
        """Number of windows and bytes written, for a checkpoint."""
        return {
            "windows": self._windows_written,
            "bytes": self.path.stat().st_size if self._started else 0,
        }

    def restore(self, state: dict[str, int]) -> None:
        """Truncate the file to its state in a checkpoint and continue from there.

        Args:
            state: As `state` returned it.

        Raises:
            UserError: The file is missing or shorter than the checkpoint says.
        """
        self._windows_written, self._started = state["windows"], state["bytes"] > 0
        if not self._started:
            return
        if not self.path.is_file() or self.path.stat().st_size < state["bytes"]:
            raise UserError(
                f"{self.path} is missing or shorter than when the checkpoint was taken: restore "
                "it, or start again with --overwrite"
            )
        os.truncate(self.path, state["bytes"])

    def _flush(self, complete_only: bool) -> None:
        rows = self.model.step_log.take(self._windows_written, complete_only)
        cells = [["" if math.isnan(value) else f"{value:.9g}" for value in row] for row in rows]
        advice = "free space or restore the file; the run resumes from its last checkpoint"
        # "r+" instead of "a", which would create a missing file again, without its beginning.
        with translate_os_error(self.path, advice), self.path.open("r+", newline="") as file:
            file.seek(0, os.SEEK_END)
            csv.writer(file).writerows(cells)
        self._windows_written += len(rows)
        self._steps_since_flush = 0
