"""Evaluation of a run: its accuracy matrix, or that of another metric."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.arguments.evaluate import ALL, tasks_to_evaluate
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.records.summary import matrix_to_json, row_to_json


class Evaluation:
    """Fills the accuracy matrix of a run and measures the time this takes.

    Of a learner that averages its weights it fills two: with the plain weights and the average.

    Args:
        learner: A learner.
        tasks: The tasks of the stream.
        score: The value of a task, where the matrix holds another metric than accuracy.
        evaluate: Which tasks are evaluated after each task, as `checked_evaluate` returns it.
        keeps_confusions: Whether `confusions` are kept, where the matrix holds accuracies.

    Attributes:
        matrix: float [tasks, tasks], nan where not evaluated, with the plain weights.
        averaged: The same with the averaged weights; None where the learner keeps no average.
        initial: The value of each task before training, nan where not evaluated.
        seconds: Time spent in evaluation.
        confusions: For "plain" and "averaged" weights and each row, how the test examples of the
            tasks so far were classified: right classes, predicted ones (the number of classes for
            NaN) and counts, three lists.
    """

    def __init__(
        self,
        learner: Learner,
        tasks: Sequence[Any],
        score: Callable[[Any], float] | None = None,
        evaluate: str = ALL,
        keeps_confusions: bool = False,
    ):
        self._learner, self._tasks, self._score = learner, list(tasks), score
        self._evaluate = evaluate
        self.matrix = np.full((len(self._tasks), len(self._tasks)), np.nan)
        self.averaged = None if learner.option(AverageWeights) is None else self.matrix.copy()
        self.initial: list[float] = []
        self.seconds = 0.0
        self.confusions: dict[str, dict[int, list[list[int]]]] = {"plain": {}, "averaged": {}}
        self._keeps_confusions = keeps_confusions and score is None
        self._row = -1

    def evaluate_initial(self) -> None:
        """Evaluate with the initial weights, which any average begins with."""
        count = len(self._tasks)
        values = self._values(tasks_to_evaluate(self._evaluate, -1, count), lambda: None)
        self.initial = values + [math.nan] * (count - len(values))

    def evaluate_after(self, i: int, before_each: Callable[[], None]) -> None:
        """Fill row i after training on task i, as far as it is to be measured.

        Args:
            i: The row.
            before_each: Called before each task; if it raises, the row stays unchanged.
        """
        self._row = i
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
            "matrix": matrix_to_json(self.matrix), **averaged,
            "initial": row_to_json(self.initial), "seconds": self.seconds,
            **({"confusions": self.confusions} if self._keeps_confusions else {}),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the results from a checkpoint."""
        self.matrix = np.array(state["matrix"], float)
        if self.averaged is not None:
            self.averaged = np.array(state["averaged"], float)
        self.initial = np.array(state["initial"], float).tolist()
        self.seconds = state["seconds"]
        for which, rows in state.get("confusions", {}).items():
            self.confusions[which] = {int(row): cells for row, cells in rows.items()}

    def _values(
        self, numbers: range, before_each: Callable[[], None], which: str = "plain"
    ) -> list[float]:
        """Values of the tasks of these numbers with the plain or the averaged weights."""
        tasks = [self._tasks[number] for number in numbers]
        if self._score is None:
            kept = sum(n <= self._row for n in numbers) if self._keeps_confusions else 0
            values = self._accuracies(tasks, before_each, which, kept)
        else:
            values = self._scores(tasks, before_each, which, self._score)
        self._learner.warn_once("nan", self._learner.nan_count.warning())
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
        self, tasks: Sequence[Any], before_each: Callable[[], None], which: str, kept: int
    ) -> list[float]:
        """Accuracies on tasks, fetched from the device in one transfer.

        Those of the first `kept` tasks together are the confusions of the row.
        """
        cells_of_tasks: list[tf.Tensor] = []
        for task in tasks:
            before_each()
            images, labels = task.test
            start = time.perf_counter()
            with self._learner.use_weights(which):
                cells_of_tasks.append(self._learner.confusion(images, labels, task.task_id))
            self.seconds += time.perf_counter() - start
        start = time.perf_counter()
        cells = tf.concat(cells_of_tasks, 0).numpy()
        ends = np.cumsum([len(part) for part in cells_of_tasks])
        self.seconds += time.perf_counter() - start
        each = np.split(cells, ends[:-1])
        if kept:
            self.confusions[which][self._row] = _added(cells[: ends[kept - 1]])
        return [_share_right(part) for part in each]


def _share_right(cells: np.ndarray) -> float:
    """The accuracy on a task; NaN where none counts, as of classes that the loss ignores."""
    right, predicted, counts = cells.T
    return float(counts[right == predicted].sum() / counts.sum()) if len(counts) else math.nan


def _added(cells: np.ndarray) -> list[list[int]]:
    """Right classes, predicted ones and counts of cells, of which equal ones are added, in order.

    Args:
        cells: int [n, 3].
    """
    pairs, place = np.unique(cells[:, :2], axis=0, return_inverse=True)
    counts = np.zeros(len(pairs), np.int64)
    np.add.at(counts, place.reshape(-1), cells[:, 2])
    return [part.tolist() for part in (*pairs.T, counts)]
