"""A picture of all runs of a stream: accuracy over the tasks."""

import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from nccl_tf.records.record import Record
from nccl_tf.records.spread import spread
from nccl_tf.reports.figures.style import PAPER_WIDTH, method_style, new_figure, style
from nccl_tf.reports.records import by_settings, titles


class Curve(NamedTuple):
    """The seeds of one settings.

    Attributes:
        title: Its name among the lines of a picture.
        records: One for each seed.
        look: Colour and marker.
    """

    title: str
    records: Sequence[Record]
    look: Mapping[str, str]

    def accuracy_so_far(self) -> np.ndarray:
        """Mean accuracy in percent over the tasks so far: [seeds, tasks], nan where not known."""
        matrices = np.array([r.accuracy_matrix for r in self.records], np.float64)
        return np.stack(
            [100 * matrices[:, i, : i + 1].mean(1) for i in range(matrices.shape[1])], 1
        )


def settings_lines(records: Sequence[Record]) -> list[Curve]:
    """The records of a stream, a line for each settings."""
    groups = by_settings(records)
    return [
        Curve(title, group, method_style(group[0].method))
        for title, group in zip(titles(groups), groups, strict=True)
    ]


def accuracy_over_tasks(lines: Sequence[Curve]) -> Figure:
    """Mean accuracy over the tasks so far, with a band of one standard deviation over seeds."""
    with style():
        figure = new_figure((PAPER_WIDTH, 3.6))
        axes = figure.subplots()
        # The legend then has the order of the lines' ends.
        for line in sorted(lines, key=lambda line: -line.accuracy_so_far()[:, -1].mean()):
            values = line.accuracy_so_far()
            after = np.arange(1, values.shape[1] + 1)
            measured = np.isfinite(values).all(0)
            after, values = after[measured], values[:, measured]
            mean, std, _ = spread(values)
            axes.plot(after, mean, label=line.title, markersize=4, linewidth=1.2,
                      **line.look)  # fmt: skip
            axes.fill_between(after, mean - std, mean + std, color=line.look["color"], alpha=0.15,
                              linewidth=0)  # fmt: skip
        axes.set(xlabel="tasks trained", ylabel="accuracy over the tasks so far (%)")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color="0.9")
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def as_svg(figure: Figure) -> str:
    """The picture as SVG, the same bytes for the same picture."""
    file = io.StringIO()
    with style():
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
