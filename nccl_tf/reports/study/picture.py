"""Accuracy against forgetting of the systems in one setting."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from nccl_tf.reports.figures.style import (
    PAPER_WIDTH,
    new_figure,
    numbered_style,
    paper_style,
)
from nccl_tf.reports.study.results import Result


def study_figure(results: Sequence[Result], names: Sequence[str]) -> Figure:
    """A point for each system with bars of one standard deviation, and its averaged weights'.

    Args:
        results: Of one setting.
        names: Of all systems of the plan, so that each looks the same in every picture.
    """
    with paper_style():
        figure = new_figure((PAPER_WIDTH, 3.6))
        axes = figure.add_subplot()
        for result in results:
            if not result.records:
                continue
            look = numbered_style(names.index(result.cell.system.name))
            points = [_point(result, kind) for kind in ("", "averaged_")[: 1 + result.averaged]]
            axes.plot(
                *zip(*[(x, y) for x, _, y, _ in points], strict=True), color=look["color"], lw=1
            )
            for (x, x_std, y, y_std), filled in zip(points, (True, False), strict=False):
                axes.errorbar(
                    x, y, xerr=x_std, yerr=y_std, fmt=look["marker"], color=look["color"],
                    markerfacecolor=look["color"] if filled else "white", markersize=7,
                    elinewidth=0.8, label=result.title if filled else None,
                )  # fmt: skip
        axes.set_xlabel("forgetting (fraction)")
        axes.set_ylabel("accuracy (%)")
        axes.set_title("filled: the weights as they are; open: their moving average")
        figure.legend(loc="outside right upper", frameon=False)
    return figure


def _point(result: Result, kind: str) -> tuple[float, float, float, float]:
    """Forgetting, its standard deviation, accuracy in percent, its standard deviation."""
    accuracy, accuracy_std = result.mean_std(f"{kind}average_accuracy")
    return (*result.mean_std(f"{kind}forgetting"), 100 * accuracy, 100 * accuracy_std)
