"""What a model has learned of a stream: its matrix, the numbers made of it, a table and a plot."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import nccl_tf.metrics as metrics
from nccl_tf.errors import UserError


@dataclass(frozen=True, eq=False)
class LearnResult:
    """The result of `nccl_tf.learn`.

    Where another metric than accuracy was asked for, every number is in its unit, and forgetting
    and the transfers know whether more or less of it is better: forgetting above 0 is always a
    loss, a transfer above 0 always a gain.

    Args:
        matrix: float [tasks, tasks], nan where not evaluated: row i after task i, column j on the
            test examples of task j. The next task of each row is evaluated too.
        initial: float [tasks], before any training.
        metric: Name of what the matrix holds.
        higher_is_better: Whether more of it is better.
        title: Of the model and the stream.
        averaged: The same with the averaged weights, for a model that has `average_weights`.
    """

    matrix: np.ndarray
    initial: np.ndarray
    metric: str = "accuracy"
    higher_is_better: bool = True
    title: str = ""
    averaged: "LearnResult | None" = None

    @property
    def average_accuracy(self) -> float:
        """Mean of the last row: the metric over all tasks at the end of the stream."""
        return metrics.average_accuracy(self.matrix)

    @property
    def learning_accuracy(self) -> float:
        """Mean of the diagonal: the metric on each task right after training on it."""
        return metrics.learning_accuracy(self.matrix)

    @property
    def forgetting(self) -> float:
        """What is lost on each task since its best row, on average; nan for a single task."""
        return metrics.forgetting(self._gains(self.matrix))

    @property
    def backward_transfer(self) -> float:
        """What later tasks add to earlier ones, on average; nan for a single task."""
        return metrics.backward_transfer(self._gains(self.matrix))

    @property
    def forward_transfer(self) -> float:
        """What earlier tasks add to a task before it is trained; nan for a single task."""
        return metrics.forward_transfer(self._gains(self.matrix), self._gains(self.initial))

    def rows(self) -> list[dict[str, float | int]]:
        """The evaluations, a dictionary each, in the order in which they were made.

        Returns:
            "tasks_trained" (0 before any training), "task" (from 0) and the metric by its name.
        """
        values = np.vstack([self.initial, self.matrix])
        return [
            {"tasks_trained": int(i), "task": int(j), self.metric: float(values[i, j])}
            for i, j in zip(*np.nonzero(np.isfinite(values)), strict=True)
        ]

    def to_pandas(self) -> Any:
        """The evaluations as a `pandas.DataFrame`, a row each; the columns are those of `rows`.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UserError(
                "to_pandas() needs pandas, which is not installed: pip install pandas, or take "
                "result.rows()"
            ) from error
        return pandas.DataFrame(self.rows(), columns=["tasks_trained", "task", self.metric])

    def plot(self, axes: Any = None) -> Any:
        """Draw the matrix, and the value of each task over time.

        Args:
            axes: Two matplotlib axes; None makes a figure of two.

        Returns:
            The two axes; `axes[0].figure.savefig("result.png")` writes them.

        Raises:
            UserError: `axes` are not two.
        """
        from nccl_tf.reports.figures.style import style
        from nccl_tf.reports.figures.task_axes import (
            ACCURACY,
            Quantity,
            draw_matrix,
            draw_over_time,
        )

        with style():
            if axes is None:
                from matplotlib import pyplot

                side = max(4.2, 1.6 + 0.4 * len(self.matrix))
                size = (side + 8.0, side)
                axes = pyplot.subplots(1, 2, figsize=size, layout="constrained")[1]
            axes = np.ravel(axes)
            if len(axes) != 2:
                raise UserError(
                    f"received {len(axes)} axes: expected two, for the matrix and the curves, such "
                    "as those of pyplot.subplots(1, 2)"
                )
            is_accuracy = self.metric == "accuracy"
            what = ACCURACY if is_accuracy else Quantity(self.metric, ".3g", is_percent=False)
            draw_matrix(axes[0], self.matrix, self.title, what)
            draw_over_time(axes[1], self.matrix, self.title, what)
        return axes

    def __str__(self) -> str:
        names = ("average_accuracy", "forgetting", "learning_accuracy", "backward_transfer")
        numbers = ", ".join(f"{n.replace('_', ' ')} {getattr(self, n):.3f}" for n in names)
        if self.metric != "accuracy":
            numbers = numbers.replace("accuracy", self.metric)
        averaged = "" if self.averaged is None else f"\n{self.averaged}"
        return f"{self.title}: {numbers}{averaged}"

    def _gains(self, values: np.ndarray) -> np.ndarray:
        """Values of which more is better."""
        return values if self.higher_is_better else -values
