"""Accuracy against forgetting of the systems, in one setting or in all."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nccl_tf.experiment.study.plan import Plan
from nccl_tf.reports.figures.style import (
    PAPER_WIDTH,
    new_figure,
    numbered_style,
    paper_style,
)
from nccl_tf.reports.study.results import Result
from nccl_tf.reports.study.winner import Results, result_of, settings_of_winner

_PANELS_ACROSS = 3
_POINTS_SHOWN = 15.0
"""Points below the best accuracy that a panel reaches down to."""


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


def winner_figure(plan: Plan, results: Results) -> Figure:
    """Averaged accuracy against averaged forgetting in every setting, the winner filled.

    Systems more than 15 points below the best one of a setting are named there, and not drawn.

    Args:
        plan: The plan, which names its winner.
        results: Of each setting by its name.

    Raises:
        UserError: The plan names none.
    """
    settings = settings_of_winner(plan, results)
    down = -(-len(settings) // _PANELS_ACROSS)
    with paper_style():
        figure = new_figure((PAPER_WIDTH, 0.8 + 2.0 * down))
        panels = figure.subplots(down, min(len(settings), _PANELS_ACROSS), squeeze=False).ravel()
        named: dict[str, object] = {}
        for axes, setting in zip(panels, settings, strict=False):
            _winner_panel(axes, plan, results[setting.name], named)
            axes.set_title(setting.title.replace(", ", ",\n", 1))
            axes.set_ylabel("accuracy (%)")
        for axes in panels[len(settings) :]:
            axes.set_axis_off()
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4)
    return figure


def _winner_panel(
    axes: Axes, plan: Plan, results: Sequence[Result], named: dict[str, object]
) -> None:
    """One setting; `named` gains what stands for a system in the legend, by its title."""
    found = [
        (number, result, _point(result, "averaged_" if result.averaged else ""))
        for number, system in enumerate(plan.systems)
        if (result := result_of(results, system.name)) is not None
    ]
    lowest = max(y for _, _, (_, _, y, _) in found) - _POINTS_SHOWN
    below = []
    for number, result, (x, x_std, y, y_std) in found:
        wins = plan.systems[number].name == plan.winner
        if y < lowest and not wins:
            below.append(f"{result.title} {y:.1f} %")
            continue
        look = numbered_style(number)
        bars = axes.errorbar(
            x, y, xerr=x_std, yerr=y_std, fmt=look["marker"], color=look["color"],
            markerfacecolor=look["color"] if wins else "white",
            markersize=7 if wins else 5, elinewidth=0.8,
        )  # fmt: skip
        named.setdefault(result.title, bars)
    lines = ["forgetting (fraction)", *([f"below: {', '.join(below)}"] if below else [])]
    axes.set_xlabel("\n".join(lines))


def _point(result: Result, kind: str) -> tuple[float, float, float, float]:
    """Forgetting, its standard deviation, accuracy in percent, its standard deviation."""
    accuracy, accuracy_std = result.mean_std(f"{kind}average_accuracy")
    return (*result.mean_std(f"{kind}forgetting"), 100 * accuracy, 100 * accuracy_std)
