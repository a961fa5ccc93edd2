"""Evaluation of a run: its accuracy matrix, or that of another metric."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.evaluated import ALL, tasks_to_evaluate
from nccl_tf.records.summary import matrix_to_json


class Evaluation:
    """Fills the accuracy matrix of a run and measures the time this takes.

    Of a learner that averages its weights it fills two: with the plain weights and the average.

    Args:
        learner: A learner.
        tasks: The tasks of the stream.
        score: The value of a task, where the matrix holds another metric than accuracy.
        evaluate: Which tasks are evaluated after each task, as `check_evaluate` returns it.

    Attributes:
        matrix: float [tasks, tasks], nan where not evaluated, with the plain weights.
        averaged: The same with the averaged weights; None where the learner keeps no average.
        initial: The value of each task before training.
        seconds: Time spent in evaluation.
    """

    def __init__(
        self,
        learner: keras.Model,
        tasks: Sequence[Any],
        score: Callable[[Any], float] | None = None,
        evaluate: str = ALL,
    ):
        self._learner, self._tasks, self._score = learner, list(tasks), score
        self._evaluate = evaluate
        self.matrix = np.full((len(self._tasks), len(self._tasks)), np.nan)
        self.averaged = None if learner.average_weights is None else self.matrix.copy()
        self.initial: list[float] = []
        self.seconds = 0.0

    def evaluate_initial(self) -> None:
        """Evaluate all tasks with the initial weights, which any average begins with."""
        self.initial = self._values(range(len(self._tasks)), lambda: None)

    def evaluate_after(self, i: int, before_each: Callable[[], None]) -> None:
        """Fill row i after training on task i, as far as it is to be measured.

        Args:
            i: The row.
            before_each: Called before each task; if it raises, the row stays unchanged.
        """
        numbers = tasks_to_evaluate(self._evaluate, i, len(self._tasks))
        row = self._values(numbers, before_each)
        if self.averaged is not None:
            self.averaged[i, numbers] = self._values(numbers, before_each, "averaged")
        self.matrix[i, numbers] = row

    def mean_so_far(self, i: int) -> float | None:
        """Mean over the tasks up to i after task i; None where not all of them were evaluated."""
        mean = float(np.mean(self.matrix[i, : i + 1]))
        return None if np.isnan(mean) else mean

    def state(self) -> dict[str, Any]:
        """The results so far as JSON values, for a checkpoint."""
        averaged = {} if self.averaged is None else {"averaged": matrix_to_json(self.averaged)}
        return {
            "matrix": matrix_to_json(self.matrix), **averaged, "initial": self.initial,
            "seconds": self.seconds,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the results from a checkpoint."""
        self.matrix = np.array(state["matrix"], float)
        if self.averaged is not None:
            self.averaged = np.array(state["averaged"], float)
        self.initial = list(state["initial"])
        self.seconds = state["seconds"]

    def _values(
        self, numbers: range, before_each: Callable[[], None], which: str = "plain"
    ) -> list[float]:
        """Values of the tasks of these numbers with the plain or the averaged weights."""
        tasks = [self._tasks[number] for number in numbers]
        if self._score is None:
            values = self._accuracies(tasks, before_each, which)
        else:
            values = self._scores(tasks, before_each, which, self._score)
        self._learner.nan_examples.tell(self._learner)
        return values

    def _scores(
        self,
        tasks: Sequence[Any],
        before_each: Callable[[], None],
        which: str,
        score: Callable[[Any], float],
    ) -> list[float]:
        values = []
        for task in tasks:
            before_each()
            start = time.perf_counter()
            # Put back before each task, because a checkpoint may be written there.
            with self._learner.use_weights(which):
                values.append(score(task))
            self.seconds += time.perf_counter() - start
        return values

    def _accuracies(
        self, tasks: Sequence[Any], before_each: Callable[[], None], which: str
    ) -> list[float]:
        """Accuracies on tasks, fetched from the device in one transfer."""
        correct, sizes = [], []
        for task in tasks:
            before_each()
            images, labels = task.test
            start = time.perf_counter()
            with self._learner.use_weights(which):
                correct.append(self._learner.correct(images, labels, task.task_id))
            sizes.append(len(labels))
            self.seconds += time.perf_counter() - start
        start = time.perf_counter()
        accuracies = tf.stack(correct).numpy() / np.array(sizes)
        self.seconds += time.perf_counter() - start
        return accuracies.tolist()
