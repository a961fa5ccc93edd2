"""Time of training apart from time of tracing and compiling."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import keras
import tensorflow as tf


class TrainClock(keras.callbacks.Callback):
    """Splits the time of `fit` into training and compiling.

    A call of the graph during which the learner traced its step took longer than the others by the
    tracing and compiling: the excess over the median of the other calls is booked as compiling.
    What the first `fit` does before its first step builds the graph and is booked there too.

    Args:
        clock: Seconds from any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._clock = clock
        self._plain: list[float] = []
        self._tracing: list[float] = []
        self._building = 0.0
        self._total = 0.0
        self._earlier = {"train_seconds": 0.0, "compile_seconds": 0.0}
        self._running = False
        self._fit_start = self._call_start = 0.0
        self._traces = 0

    def start(self) -> None:
        """Call right before `fit`."""
        self._fit_start = self._clock()
        self._running = True

    def stop(self, apart: float = 0.0) -> None:
        """Call right after `fit`.

        Args:
            apart: Seconds since `start` that were no training.
        """
        self._total += self._clock() - self._fit_start - apart
        self._running = False

    def state(self) -> dict[str, float]:
        """The seconds so far, for a checkpoint."""
        return {"train_seconds": self.train_seconds, "compile_seconds": self.compile_seconds}

    def restore(self, state: dict[str, float]) -> None:
        """Add the seconds of the work that a checkpoint kept."""
        self._earlier = dict(state)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """The first time, book what came before as building the graph."""
        if not (self._plain or self._tracing):
            self._building = self._clock() - self._fit_start

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """A call of the graph begins."""
        self._traces = self.model.traces
        self._call_start = self._clock()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Book the call as tracing or plain."""
        calls = self._tracing if self.model.traces > self._traces else self._plain
        calls.append(self._clock() - self._call_start)

    @property
    def compile_seconds(self) -> float:
        """Seconds of tracing and compiling so far."""
        return self._earlier["compile_seconds"] + self._own_compile_seconds()

    @property
    def train_seconds(self) -> float:
        """Seconds inside `fit` so far, without tracing and compiling."""
        fit = self._clock() - self._fit_start if self._running else 0.0
        own = self._total + fit - self._own_compile_seconds()
        return self._earlier["train_seconds"] + own

    def _own_compile_seconds(self) -> float:
        usual = statistics.median(self._plain) if self._plain else 0.0
        return self._building + sum(max(0.0, seconds - usual) for seconds in self._tracing)


CALL = 2
"""The call of the graph that is traced: the first one builds the graph."""


class StepProfile(keras.callbacks.Callback):
    """Traces one call of the graph of a run, for TensorBoard's profile page.

    A trace costs the traced steps about a third more; it changes no number.

    Args:
        folder: Takes the trace, in `plugins/profile`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._calls = folder, 0

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Begin the trace before its call."""
        self._calls += 1
        if self._calls == CALL:
            tf.profiler.experimental.start(str(self._folder))

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Write the trace after its call."""
        if self._calls == CALL:
            tf.profiler.experimental.stop()
