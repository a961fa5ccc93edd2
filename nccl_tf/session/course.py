"""What a call of `learn` has done so far, in all its processes."""

import time
from collections.abc import Callable
from typing import Any

from nccl_tf.session.evaluation import Evaluation
from nccl_tf.session.state import Place, SessionCallback


class Course(SessionCallback):
    """Counts the passes and the seconds of training; a backup has them, and the first rate.

    Args:
        evaluation: Whose seconds are none of training.
        parts: How many parts are trained in turn.
        rate: The learning rate that the call begins with, which callbacks may lower.
        clock: Returns seconds from any origin.

    Attributes:
        rate: That of the first process.
        passes: Of each part, those that have ended, the last one by a callback perhaps.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        parts: int,
        rate: float,
        clock: Callable[[], float] = time.perf_counter,
    ):
        super().__init__()
        self.rate, self.passes = rate, [0] * parts
        self._evaluation, self._part, self._clock = evaluation, 0, clock
        self._begin(0.0)

    @property
    def train_seconds(self) -> float:
        """Seconds of training and compiling."""
        elapsed = self._clock() - self._begun
        return self._earlier + max(0.0, elapsed - (self._evaluation.seconds - self._evaluated))

    def before_task(self, place: Place) -> None:
        """Note which part is trained."""
        self._part = place.task

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count a pass."""
        self.passes[self._part] = epoch + 1

    def state(self) -> dict[str, Any]:
        """For a backup."""
        return {"rate": self.rate, "passes": self.passes, "train_seconds": self.train_seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a backup, once the evaluation is restored."""
        self.rate, self.passes = float(state["rate"]), [int(each) for each in state["passes"]]
        self._begin(float(state["train_seconds"]))

    def _begin(self, earlier: float) -> None:
        self._earlier, self._begun = earlier, self._clock()
        self._evaluated = self._evaluation.seconds
