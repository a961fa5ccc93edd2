"""Callbacks that measure training time, without tracing and compiling."""

import statistics
import time
from collections.abc import Callable

from nccl_tf.session.state import Place, SessionCallback


class TrainClock(SessionCallback):
    """Splits the time of `fit` into training and compiling.

    A call of the train function that traces or compiles the step takes longer than other calls; the
    excess over their median counts as compiling. The time of the first `fit` before its first step
    builds the graph and counts as compiling too.

    Args:
        clock: Returns seconds from any origin.
        excluded: Returns seconds so far that do not count as training.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        excluded: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__()
        self._clock, self._excluded = clock, excluded
        self._plain: list[float] = []
        self._tracing: list[float] = []
        self._building = 0.0
        self._total = 0.0
        self._earlier = {"train_seconds": 0.0, "compile_seconds": 0.0}
        self._running = False
        self._fit_start = self._call_start = self._excluded_before = 0.0
        self._made = 0

    def before_task(self, place: Place) -> None:
        """Start the time of a task."""
        self._fit_start, self._excluded_before = self._clock(), self._excluded()
        self._running = True

    def after_training(self) -> None:
        """Stop the time of a task."""
        excluded = self._excluded() - self._excluded_before
        self._total += self._clock() - self._fit_start - excluded
        self._running = False

    def state(self) -> dict[str, float]:
        """Seconds so far, for a checkpoint."""
        return {"train_seconds": self.train_seconds, "compile_seconds": self.compile_seconds}

    def restore(self, state: dict[str, float]) -> None:
        """Add the seconds of the work up to a checkpoint."""
        self._earlier = dict(state)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """In the first `fit`, count the time so far as building the graph."""
        if not (self._plain or self._tracing):
            self._building = self._clock() - self._fit_start

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Start the time of a call."""
        self._made = self.model.execution.made
        self._call_start = self._clock()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Count the call as tracing or plain."""
        calls = self._tracing if self.model.execution.made > self._made else self._plain
        calls.append(self._clock() - self._call_start)

    @property
    def compile_seconds(self) -> float:
        """Seconds of tracing and compiling so far."""
        return self._earlier["compile_seconds"] + self._new_compile_seconds()

    @property
    def train_seconds(self) -> float:
        """Seconds inside `fit` so far, without tracing and compiling."""
        fit = self._clock() - self._fit_start if self._running else 0.0
        new = self._total + fit - self._new_compile_seconds()
        return self._earlier["train_seconds"] + new

    def _new_compile_seconds(self) -> float:
        """Seconds of tracing and compiling in this process."""
        typical = statistics.median(self._plain) if self._plain else 0.0
        return self._building + sum(max(0.0, seconds - typical) for seconds in self._tracing)
