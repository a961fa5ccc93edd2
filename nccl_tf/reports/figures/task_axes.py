"""Drawing on axes: a matrix of tasks, and the value of each task over time."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.patheffects import withStroke

from nccl_tf.reports.figures.style import MATRIX_COLORS, MEAN_COLOR, task_style


class Quantity(NamedTuple):
    """The quantity of a matrix.

    Attributes:
        label: Its name and unit on an axis.
        form: Format of a value in a cell.
        is_percent: Whether values are fractions that are drawn as percent.
    """

    label: str = "accuracy (%)"
    form: str = ".0f"
    is_percent: bool = True

    def drawn(self, matrix: Any) -> np.ndarray:
        """The values in the unit that is drawn."""
        return (100 if self.is_percent else 1) * np.array(matrix, dtype=np.float64)


ACCURACY = Quantity()


def quantity_of(metric: str, higher_is_better: bool) -> Quantity:
    """The quantity of a metric of `learn`; where less of it is better, its label says so."""
    if metric == "accuracy":
        return ACCURACY
    label = metric if higher_is_better else f"{metric} (less is better)"
    return Quantity(label, ".3g", is_percent=False)


def draw_matrix(
    axes: Any, matrix: Any, title: str, quantity: Quantity = ACCURACY, *, fontsize: float = 8
) -> None:
    """Draw the matrix with its value in each cell; cells not evaluated stay empty.

    Colour marks the trained tasks; above them, in grey, stands the next one, not trained yet.

    Args:
        axes: Of matplotlib.
        matrix: float [tasks, tasks], nan where not evaluated; row i after task i.
        title: Of the axes.
        quantity: What the matrix holds.
        fontsize: Of the values, in points.
    """
    values = quantity.drawn(matrix)
    count = len(values)
    trained = np.ma.masked_invalid(np.where(np.tri(count, dtype=bool), values, np.nan))
    low, high = trained.min(), trained.max()
    if quantity.is_percent:
        low, high = min(10 * np.floor(low / 10), 90.0), 100
    image = axes.imshow(trained, vmin=low, vmax=high, cmap=MATRIX_COLORS)
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            on_color = "black" if value > (low + high) / 2 else "white"
            text = format(value, quantity.form)
            color = on_color if j <= i else "0.5"
            axes.text(j, i, text, ha="center", va="center", color=color, fontsize=fontsize)
    set_task_ticks(axes.xaxis, count, first=0)
    set_task_ticks(axes.yaxis, count, first=0)
    axes.set(xlabel="evaluated on task (grey: not trained yet)", ylabel="after training task")
    axes.set_title(title, parse_math=False)
    axes.figure.colorbar(image, ax=axes, label=quantity.label, shrink=0.8)


def draw_over_time(axes: Any, matrix: Any, title: str, quantity: Quantity = ACCURACY) -> None:
    """Draw each task from when it was trained on, and the mean over the tasks so far.

    Neighbours differ in colour and marker, and each line begins with its task's number. Lines join
    what was measured: a method that learns all tasks at once has one point for each task, at the
    end.

    Args:
        axes: Of matplotlib.
        matrix: float [tasks, tasks], nan where not evaluated; row i after task i.
        title: Of the axes.
        quantity: What the matrix holds.
    """
    values = quantity.drawn(matrix)
    count = len(values)
    after = np.arange(1, count + 1)
    for j in range(count):
        measured = np.tri(count, dtype=bool)[:, j] & np.isfinite(values[:, j])
        look = task_style(j)
        axes.plot(
            after[measured], values[measured, j], linewidth=1.0, markersize=3.5,
            label=f"task {j + 1}", **look,
        )  # fmt: skip
        for i in np.flatnonzero(measured)[:1]:
            axes.annotate(
                str(j + 1), (after[i], values[i, j]), (0, 4), textcoords="offset points",
                ha="center", fontsize=7, color=look["color"], zorder=4,
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )  # fmt: skip
    means = np.array([values[i, : i + 1].mean() for i in range(count)])
    measured = np.isfinite(means)
    axes.plot(
        after[measured], means[measured], color=MEAN_COLOR, linewidth=2.5, linestyle="--",
        label="mean so far", marker="D" if count == 1 or not measured.all() else None,
    )  # fmt: skip
    axes.legend(handles=axes.lines[-1:], loc="lower left", frameon=False)
    axes.set_xlabel("tasks trained")
    axes.set_ylabel(quantity.label, parse_math=False)
    axes.set_title(title, parse_math=False)
    if quantity.is_percent:
        lowest = min(np.nanmin(values[np.tri(count, dtype=bool)]), 100.0)
        axes.set_ylim(max(0.0, 10 * np.floor(lowest / 10) - 10), 104)
    axes.grid(axis="y", color="0.9")
    set_task_ticks(axes.xaxis, count, first=1)


def _shown(count: int) -> np.ndarray:
    return np.arange(0, count, 1 if count <= 25 else 5)


def set_task_ticks(axis: Any, count: int, first: int) -> None:
    """Name the tasks from 1 on an axis, every fifth of more than 25.

    Args:
        axis: Of matplotlib.
        count: Number of tasks.
        first: Where the first one stands.
    """
    shown = _shown(count)
    axis.set_ticks(shown + first, [str(j + 1) for j in shown])
