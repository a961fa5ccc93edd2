"""The logs of steps as rows of means, minima and maxima over windows."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.step import Step
from nccl_tf.variables import read_rows, write_rows, zeros

_EMPTY = (0.0, np.inf, -np.inf, 0.0)
"""Sum, minimum, maximum and count of no steps."""


class StepLog(Option):
    """Rows of mean, minimum and maximum of every log over windows of steps, kept in the graph.

    The rows live in a buffer of fixed size that a callback empties, so they do not depend on how
    many steps one execution takes. Sums of the logs named in `cumulative` go over the whole
    run, in float64.

    Args:
        names: Names of the logs.
        cumulative: Those of them that are also summed over the run.
        every: Steps in a window.
        rows: Windows that the buffer holds.
        tasks_ended: int64, the learner's variable of the tasks that have ended: sums are of the
            steps after the first task; None for those of all steps.
    """

    def __init__(
        self,
        names: Sequence[str],
        cumulative: Sequence[str],
        every: int,
        rows: int,
        tasks_ended: keras.Variable | None = None,
    ):
        if every < 1:
            raise UserError(f"received --record_every={every}; expected an integer of at least 1")
        self.names = tuple(names)
        self.cumulative = tuple(cumulative)
        self.every = int(every)
        self.rows = int(rows)
        self._tasks_ended = tasks_ended
        width = len(self.names)
        self.windows = zeros("windows", (self.rows, width, 4), "float32")
        self.sums = zeros("sums", (len(self.cumulative),), "float64")
        self.window_sums = zeros("window_sums", (self.rows, len(self.cumulative)), "float64")
        self.steps = zeros("steps", (), "int64")

    def after_step(self, batch: Batch, step: Step, note: Any) -> None:
        counts = True if self._tasks_ended is None else self._tasks_ended.value > 0
        self.add(step.stacked_logs(), tf.convert_to_tensor(counts))

    def add(self, values: tf.Tensor, sums_count: tf.Tensor) -> None:
        """Add a step. Graph code.

        Args:
            values: float32 [logs]; NaN where the step did not measure.
            sums_count: bool scalar, whether the cumulative sums take this step.
        """
        step, known = self.steps.value, tf.logical_not(tf.math.is_nan(values))
        row = (step // self.every % self.rows)[None]
        window = read_rows(self.windows, row)[0]
        window = tf.where(step % self.every == 0, tf.constant(_EMPTY, tf.float32), window)
        total, least, most, count = tf.unstack(window, axis=1)
        window = tf.stack(
            [
                total + tf.where(known, values, 0.0),
                tf.minimum(least, tf.where(known, values, np.inf)),
                tf.maximum(most, tf.where(known, values, -np.inf)),
                count + tf.cast(known, tf.float32),
            ],
            axis=1,
        )
        write_rows(self.windows, row, window[None])
        if self.cumulative:
            indices = [self.names.index(name) for name in self.cumulative]
            taken = tf.gather(tf.where(known & sums_count, values, 0.0), indices)
            self.sums.assign(self.sums.value + tf.cast(taken, tf.float64))
            write_rows(self.window_sums, row, self.sums.value[None])
        self.steps.value.assign_add(1)

    def state(self) -> dict[str, Any]:
        """State for a checkpoint, as JSON values: counter, sums and the incomplete window.

        It is the same for every size of the buffer. The complete windows are not in it: whoever
        keeps rows takes them first.
        """
        steps = int(self.steps.numpy())
        open_row = self.windows.numpy()[self._row(steps)].tolist() if steps % self.every else None
        return {
            "every": self.every, "steps": steps, "sums": self.sums.numpy().tolist(),
            "open": open_row,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state, whatever the size of the buffer that it was taken from.

        Where that had windows of another length, the window that is open now begins with the next
        step.

        Args:
            state: As `state` returned it.

        Raises:
            ValueError: It is of a log of other names.
        """
        width, steps = len(self.names), int(state["steps"])
        sums = np.reshape(np.array(state["sums"], np.float64), self.sums.shape)
        open_row = np.broadcast_to(np.array(_EMPTY, np.float32), (width, 4))
        if state["every"] == self.every and state["open"] is not None:
            open_row = np.reshape(np.array(state["open"], np.float32), (width, 4))
        windows, window_sums = self.windows.numpy(), self.window_sums.numpy()
        windows[self._row(steps)], window_sums[self._row(steps)] = open_row, sums
        self.windows.assign(windows)
        self.window_sums.assign(window_sums)
        self.sums.assign(sums)
        self.steps.assign(steps)

    def _row(self, steps: int) -> int:
        """Where the window lies that the next step falls into."""
        return steps // self.every % self.rows

    def header(self) -> list[str]:
        """Names of the columns of the rows that `take` returns."""
        statistics = [f"{name}_{part}" for name in self.names for part in ("mean", "min", "max")]
        return ["step", *statistics, *(f"cumulative_{name}" for name in self.cumulative)]

    def take(self, taken: int, whole: bool) -> list[list[float]]:
        """The rows from window number `taken` on, without those that the buffer holds no more.

        Args:
            taken: Windows taken before.
            whole: Only windows that are complete.

        Returns:
            A list per window, in the order of `header`; "step" is the number of steps done at the
            window's end, and what was not measured is NaN.
        """
        steps = int(self.steps.numpy())
        last = steps // self.every if whole else -(-steps // self.every)
        windows, sums = self.windows.numpy(), self.window_sums.numpy()
        rows = []
        oldest = -(-steps // self.every) - self.rows
        for window in range(max(taken, oldest), last):
            total, least, most, count = windows[window % self.rows].T
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = total / count
            least, most = (np.where(count > 0, part, np.nan) for part in (least, most))
            statistics = np.stack([mean, least, most], axis=1).reshape(-1)
            end = min((window + 1) * self.every, steps)
            rows.append([end, *statistics.tolist(), *sums[window % self.rows].tolist()])
        return rows
