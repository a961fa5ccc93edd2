"""Pictures of all runs of a stream: accuracy over tasks, forgetting against accuracy, time."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from nccl_tf.reports.figures.style import (
    method_style,
    new_figure,
    style,
)
from nccl_tf.reports.records import by_settings, titles

Record = Mapping[str, Any]


class Line(NamedTuple):
    """The seeds of one settings.

    Attributes:
        title: Its name among the lines of a picture.
        records: One for each seed.
        look: Colour and marker.
    """

    title: str
    records: Sequence[Record]
    look: Mapping[str, str]

    def values(self, name: str, scale: float = 1.0) -> np.ndarray:
        """A number of each record, nan where it is undefined: float [seeds]."""
        values = [record[name] for record in self.records]
        return np.array([np.nan if value is None else scale * value for value in values])

    def accuracy_so_far(self) -> np.ndarray:
        """Mean accuracy in percent over the tasks so far: [seeds, tasks], nan where not known."""
        matrices = np.array([r["accuracy_matrix"] for r in self.records], np.float64)
        return np.stack(
            [100 * matrices[:, i, : i + 1].mean(1) for i in range(matrices.shape[1])], 1
        )


def settings_lines(records: Sequence[Record]) -> list[Line]:
    """The records of a stream, a line for each settings."""
    groups = by_settings(records)
    return [
        Line(title, group, method_style(group[0]["method"]))
        for title, group in zip(titles(groups), groups, strict=True)
    ]


def accuracy_over_tasks(lines: Sequence[Line]) -> Figure:
    """Mean accuracy over the tasks so far, with a band of one standard deviation over seeds."""
    with style():
        figure = new_figure((8.5, max(4.2, 0.24 * len(lines) + 0.8)))
        axes = figure.subplots()
        dashes = _dashes(lines)
        # The legend then has the order of the lines' ends.
        for line in sorted(lines, key=lambda line: -line.accuracy_so_far()[:, -1].mean()):
            values = line.accuracy_so_far()
            after = np.arange(1, values.shape[1] + 1)
            measured = np.isfinite(values).all(0)
            after, values = after[measured], values[:, measured]
            mean, std = values.mean(0), values.std(0)
            axes.plot(after, mean, label=line.title, linestyle=dashes[line.title], markersize=4,
                      linewidth=1.2, **line.look)  # fmt: skip
            axes.fill_between(after, mean - std, mean + std, color=line.look["color"], alpha=0.15,
                              linewidth=0)  # fmt: skip
        axes.set(xlabel="tasks trained", ylabel="accuracy over the tasks so far (%)")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color="0.9")
        _legend(figure, axes)
    return figure


def forgetting_against_accuracy(lines: Sequence[Line]) -> Figure:
    """A point for each settings, with bars of one standard deviation over seeds."""
    with style():
        figure = new_figure((8.5, max(4.2, 0.24 * len(lines) + 0.8)))
        axes = figure.subplots()
        for line in sorted(lines, key=lambda line: -line.values("average_accuracy").mean()):
            accuracy, forgetting = line.values("average_accuracy", 100), line.values("forgetting")
            if np.isfinite(forgetting).all():
                point = (forgetting.mean(), accuracy.mean())
                axes.errorbar(*point, xerr=forgetting.std(), yerr=accuracy.std(), fmt="none",
                              capsize=2, ecolor=line.look["color"])  # fmt: skip
                axes.plot(*point, label=line.title, linestyle="none", markersize=6, **line.look)
        axes.set(xlabel="forgetting", ylabel="average accuracy (%)")
        axes.grid(color="0.9")
        _legend(figure, axes)
    return figure


def training_time(lines: Sequence[Line]) -> Figure:
    """A bar for each settings: seconds of training and, after them, of compiling."""
    with style():
        figure = new_figure((8.5, 0.28 * len(lines) + 1.2))
        axes = figure.subplots()
        places = np.arange(len(lines))[::-1]
        train = np.array([line.values("train_seconds").mean() for line in lines])
        compiling = np.array([line.values("compile_seconds").mean() for line in lines])
        spread = [line.values("train_seconds").std() for line in lines]
        axes.barh(places, train, xerr=spread, color="#56B4E9", ecolor="0.3", capsize=2,
                  label="training")  # fmt: skip
        axes.barh(places, compiling, left=train, color="#E69F00", label="compiling")
        axes.set_yticks(places, [line.title for line in lines])
        axes.set(xlabel="seconds, mean over seeds", ylim=(-0.7, len(lines) - 0.3))
        axes.legend(frameon=False, loc="best")
    return figure


def as_svg(figure: Figure) -> str:
    """The picture as SVG, the same bytes for the same picture."""
    file = io.StringIO()
    with style():
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _dashes(lines: Sequence[Line]) -> dict[str, str]:
    """Solid for the first settings of a method, other dashes for the next ones."""
    kinds = ("-", "--", "-.", ":")
    seen: dict[str, int] = {}
    result = {}
    for line in lines:
        method = line.records[0]["method"]
        result[line.title] = kinds[seen.setdefault(method, 0) % len(kinds)]
        seen[method] += 1
    return result


def _legend(figure: Figure, axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
