"""The accuracy matrix of a run as it fills."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class Evaluation:
    """The accuracy matrix, float [tasks, tasks], nan where not evaluated, and the time it took.

    Args:
        learner: Has `correct(images, labels, task_id)`, a scalar tensor.
        tasks: The tasks of the stream.
    """

    def __init__(self, learner: keras.Model, tasks: Sequence[Any]):
        self._learner, self._tasks = learner, list(tasks)
        self.matrix = np.full((len(self._tasks), len(self._tasks)), np.nan)
        self.initial: list[float] = []
        self.seconds = 0.0

    def before_training(self) -> None:
        """Measure every task's accuracy with the initial weights."""
        self.initial = self._accuracies(len(self._tasks), lambda: None)

    def after(self, i: int, between: Callable[[], None]) -> None:
        """Fill the row of the state after task i: tasks up to i, and the next for transfer.

        Args:
            i: The row.
            between: Called before each cell; it may raise, and the row is filled anew later.
        """
        count = min(i + 2, len(self._tasks))
        self.matrix[i, :count] = self._accuracies(count, between)

    def state(self) -> dict[str, Any]:
        """What is measured so far, as JSON values."""
        return {
            "matrix": [[None if np.isnan(a) else float(a) for a in row] for row in self.matrix],
            "initial": self.initial,
            "seconds": self.seconds,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what a checkpoint kept."""
        self.matrix = np.array(state["matrix"], float)
        self.initial = list(state["initial"])
        self.seconds = state["seconds"]

    def _accuracies(self, count: int, between: Callable[[], None]) -> list[float]:
        """Of the first `count` tasks, brought from the device at once."""
        correct, sizes = [], []
        for task in self._tasks[:count]:
            between()
            images, labels = task.test
            start = time.perf_counter()
            correct.append(self._learner.correct(images, labels, task.task_id))
            sizes.append(len(labels))
            self.seconds += time.perf_counter() - start
        start = time.perf_counter()
        found = tf.stack(correct).numpy() / np.array(sizes)
        self.seconds += time.perf_counter() - start
        return found.tolist()
