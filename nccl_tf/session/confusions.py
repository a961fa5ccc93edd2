"""Confusion matrices after each task of a stream."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import shown_class


class Confusions:
    """The confusion matrices of a stream, with classes in the order in which they came.

    Args:
        task_classes: The classes of each task.
        cells: By the number of the task trained last: right classes, predicted classes and counts
            of the test examples of the tasks so far, as `Evaluation.confusions` keeps them.
        class_names: Names of the classes by number; None where they have none.

    Attributes:
        classes: The classes in the order in which they came.
        came_with: int [classes], the task that each of them came with, in that order.
    """

    def __init__(
        self,
        task_classes: Sequence[Sequence[int]],
        cells: Mapping[int, Sequence[Sequence[int]]],
        class_names: Sequence[str] | None = None,
    ):
        first: dict[int, int] = {}
        for task, classes in enumerate(task_classes):
            for label in classes:
                first.setdefault(int(label), task)
        for task, (rights, *_) in sorted(cells.items()):  # of test examples alone
            for label in rights:
                first.setdefault(label, task)
        self.classes, self.came_with = tuple(first), np.array([*first.values()], int)
        self.tasks = len(task_classes)
        self._cells, self._class_names = cells, class_names

    def names(self) -> list[str]:
        """The classes as pictures show them, in the order of `classes`."""
        return [shown_class(self._class_names, label) for label in self.classes]

    def of(self, task: int) -> np.ndarray:
        """int [classes, classes]: right classes by predicted ones, after a task.

        Raises:
            UserError: Nothing was measured after that task.
        """
        return self._counts(task)[:, :-1]

    def totals(self, task: int) -> np.ndarray:
        """int [classes]: test examples of each class after a task, whatever they are taken for.

        Raises:
            UserError: As for `of`.
        """
        return self._counts(task).sum(axis=1)

    def class_accuracy(self) -> np.ndarray:
        """float [tasks, classes]: share of each class that is right; nan where not measured."""
        values = np.full((self.tasks, len(self.classes)), np.nan)
        for task in self._cells:
            counts = self._counts(task)
            with np.errstate(invalid="ignore"):
                values[task] = np.diag(counts) / counts.sum(axis=1)
        return values

    def accuracy_of(self, new: bool | None = None) -> np.ndarray:
        """float [tasks]: share right of the classes that came with the task, or before it; None for
        all of them."""
        values = np.full(self.tasks, np.nan)
        for task in self._cells:
            came = self.came_with
            chosen = came <= task if new is None else came == task if new else came < task
            counts = self._counts(task)
            with np.errstate(invalid="ignore"):
                values[task] = np.diag(counts)[chosen].sum() / counts[chosen].sum()
        return values

    def _counts(self, task: int) -> np.ndarray:
        """int [classes, classes + 1]; the last column counts predictions outside these classes."""
        task = range(self.tasks)[task] if -self.tasks <= task < self.tasks else task
        if task not in self._cells:
            measured = ", ".join(map(str, sorted(self._cells)))
            raise UserError(
                f"received task {task}, after which no class was measured: expected one of "
                f"{measured or 'a stream of classes'}"
            )
        place = {label: i for i, label in enumerate(self.classes)}
        counts = np.zeros((len(place), len(place) + 1), int)
        for right, found, count in zip(*self._cells[task], strict=True):
            counts[place[right], place.get(found, -1)] += count
        return counts


def draw_confusion(
    axes: Any, counts: np.ndarray, totals: np.ndarray, names: Sequence[str], title: str
) -> None:
    """Draw the share of each class (row) that is taken for each class (column).

    Args:
        axes: Of matplotlib.
        counts: int [classes, classes].
        totals: int [classes], test examples of each class, those too that are taken for none here.
        names: Of the classes.
        title: Of the axes.
    """
    totals = totals[:, None]
    shares = 100 * counts / np.maximum(totals, 1)
    came = np.broadcast_to(totals > 0, shares.shape)
    image = axes.imshow(np.ma.masked_where(~came, shares), vmin=0, vmax=100)
    if len(names) <= 20:
        for (i, j), share in np.ndenumerate(shares):
            if counts[i, j]:
                color = "black" if share > 50 else "white"
                axes.text(j, i, f"{share:.0f}", ha="center", va="center", color=color, fontsize=7)
    shown = range(0, len(names), 1 if len(names) <= 30 else 10)
    labels = [names[i] for i in shown]
    turned = 90 if max(map(len, names)) > 3 else 0
    axes.set_xticks(shown, labels, rotation=turned, parse_math=False)
    axes.set_yticks(shown, labels, parse_math=False)
    axes.set(xlabel="predicted class", ylabel="right class, in order of arrival")
    axes.set_title(title, parse_math=False)
    axes.figure.colorbar(image, ax=axes, label="of the class (%)", shrink=0.8)
