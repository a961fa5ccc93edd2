"""Pictures of a run: the accuracy matrix, and the accuracy of each task over time."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure

from nccl_tf.experiment.run.files import write_file
from nccl_tf.reports.figures.style import (
    MATRIX_COLORS,
    MEAN_COLOR,
    new_figure,
    style,
    task_colors,
)
from nccl_tf.reports.terminal import task_counts


def accuracy_matrix(record: Mapping[str, Any]) -> Figure:
    """The matrix with whole percent in each cell; cells not evaluated stay empty.

    Colour marks the trained tasks; above them, in grey, stands the next one, not trained yet.
    """
    values = 100 * _matrix(record)
    count = len(values)
    trained = np.ma.masked_invalid(np.where(np.tri(count, dtype=bool), values, np.nan))
    low = min(10 * np.floor(trained.min() / 10), 90.0)
    side = max(4.2, 1.6 + 0.4 * count)
    with style():
        figure = new_figure((side + 1.0, side))
        axes = figure.subplots()
        image = axes.imshow(trained, vmin=low, vmax=100, cmap=MATRIX_COLORS)
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                on_color = "black" if value > (low + 100) / 2 else "white"
                color = on_color if j <= i else "0.5"
                axes.text(j, i, f"{value:.0f}", ha="center", va="center", color=color, fontsize=8)
        _task_ticks(axes.xaxis, count, first=0)
        _task_ticks(axes.yaxis, count, first=0)
        axes.set(
            xlabel="evaluated on task (grey: not trained yet)",
            ylabel="after training task",
            title=_title(record),
        )
        figure.colorbar(image, ax=axes, label="accuracy (%)", shrink=0.8)
    return figure


def accuracy_over_time(record: Mapping[str, Any]) -> Figure:
    """Accuracy of each task from when it was trained on, and the mean over the tasks so far.

    A method that learns all tasks at once has one point for each task, at the end.
    """
    values = 100 * _matrix(record)
    count = len(values)
    colors = task_colors(count)
    after = np.arange(1, count + 1)
    with style():
        figure = new_figure((7.5, 4.2))
        axes = figure.subplots()
        for j in range(count):
            axes.plot(
                after[j:], values[j:, j], color=colors[j], linewidth=1.2, marker="o", markersize=3,
                label=f"task {j + 1}",
            )  # fmt: skip
        means = [values[i, : i + 1].mean() for i in range(count)]
        axes.plot(
            after, means, color=MEAN_COLOR, linewidth=2.5, linestyle="--", label="mean so far",
            marker="D" if np.isfinite(means).sum() == 1 else None,
        )  # fmt: skip
        axes.legend(handles=axes.lines[-1:], loc="lower left", frameon=False)
        lowest = min(np.nanmin(values[np.tri(count, dtype=bool)]), 100.0)
        axes.set(
            xlabel="tasks trained", ylabel="accuracy (%)", title=_title(record),
            ylim=(max(0.0, 10 * np.floor(lowest / 10) - 10), 101),
        )  # fmt: skip
        axes.grid(axis="y", color="0.9")
        _task_ticks(axes.xaxis, count, first=1)
        if count > 1:
            norm = BoundaryNorm(np.arange(count + 1) + 0.5, count)
            bar = figure.colorbar(
                ScalarMappable(norm, ListedColormap(colors)), ax=axes, label="task", pad=0.02
            )
            bar.set_ticks(_shown(count) + 1)
            bar.ax.minorticks_off()
    return figure


def save_figures(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw both pictures as PNG into `folder`.

    Returns:
        The files, accuracy_matrix.png and accuracy_over_time.png.

    Raises:
        UserError: The folder cannot be written.
    """
    paths = []
    for draw in (accuracy_matrix, accuracy_over_time):
        path = folder / f"{draw.__name__}.png"
        picture = io.BytesIO()
        draw(record).savefig(picture, format="png", dpi=150)
        write_file(path, picture.getvalue())
        paths.append(path)
    return paths


def _matrix(record: Mapping[str, Any]) -> np.ndarray:
    return np.array(record["accuracy_matrix"], dtype=np.float64)


def _shown(count: int) -> np.ndarray:
    return np.arange(0, count, 1 if count <= 25 else 5)


def _task_ticks(axis: Any, count: int, first: int) -> None:
    shown = _shown(count)
    axis.set_ticks(shown + first, [str(j + 1) for j in shown])


def _title(record: Mapping[str, Any]) -> str:
    name = f"{record['method']} on {record['dataset']} ({record['head']}-head)"
    return f"{name}, seed {record['seed']}\n{task_counts(record)}"
