"""Accuracy and forgetting over the values of each number that was varied, the others held."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.settings import flattened
from nccl_tf.experiment.run.summary import AVERAGED
from nccl_tf.reports.figures.figure2 import add_caption
from nccl_tf.reports.figures.style import (
    PAPER_WIDTH,
    new_figure,
    numbered_style,
    paper_style,
)
from nccl_tf.reports.records import (
    Record,
    by_settings,
    independent,
    is_trial,
    mean_std,
    method_title,
)

Records = Sequence[Record]
_METRICS = (("average_accuracy", "accuracy (%)", 100), ("forgetting", "forgetting (fraction)", 1))
_LOG_FROM = 3.0
"""The largest value over the smallest from which an axis is logarithmic."""
_FEWER_TICKS_FROM = 30.0
"""The same, from which it has ticks at powers of ten alone."""


@dataclass(frozen=True)
class Curve:
    """A number of one method on one stream over its values.

    Args:
        family: Method, data set and head, and whether they are trials where others are none, as a
            legend names them.
        number: Name of the number, as its flag has it.
        values: Those that it took, in ascending order; text in the order of the alphabet.
        groups: Records of each value, one a seed.
        base: Position of the value that the other curves of the family hold.
    """

    family: str
    number: str
    values: tuple[Any, ...]
    groups: tuple[Records, ...]
    base: int

    def mean_std(self, metric: str, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Means and population standard deviations over the seeds, times `scale`: [values]."""
        means, stds = zip(*(mean_std(group, metric) for group in self.groups), strict=True)
        return scale * np.array(means), scale * np.array(stds)


def sensitivity_figure(records: Records) -> Figure:
    """A column for each number, a line for each method and stream; bars are one std over seeds.

    Args:
        records: Of finished runs, those for tuning too.

    Raises:
        UserError: No two of them differ in one number alone.
    """
    curves = read_curves(records)
    if not curves:
        raise UserError(
            "no two records are of one method and stream and differ in one number alone: try "
            "values with the command sweep, and give that --output_dir"
        )
    numbers = list(dict.fromkeys(curve.number for curve in curves))
    families = list(dict.fromkeys(curve.family for curve in curves))
    with paper_style():
        figure = new_figure((PAPER_WIDTH, 4.2 + 0.15 * len(families)))
        panels = figure.subplots(2, len(numbers), squeeze=False, sharex="col", sharey="row")
        for axes, (_, label, _) in zip(panels[:, 0], _METRICS, strict=True):
            axes.set_ylabel(label)
        for column, number in zip(panels.T, numbers, strict=True):
            drawn = [curve for curve in curves if curve.number == number]
            _set_scale(column[1], [value for curve in drawn for value in curve.values])
            column[1].set_xlabel(number)
            for curve in drawn:
                _draw(column, curve, numbered_style(1 + families.index(curve.family)))
        named = {
            label: line
            for axes in panels[0]
            for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            named.values(), named.keys(), loc="outside upper center", ncols=min(2, len(families))
        )
        add_caption(figure, _caption(curves))
    return figure


def read_curves(records: Records) -> list[Curve]:
    """The curves of each method and stream, through the settings with the most neighbours.

    Trials are of a stream of their own. Neighbours differ in one number; of settings with equally
    many, the most accurate are the base.
    """
    # Trials have tasks, or images, of their own: no curve goes from them to evaluated runs.
    families: dict[tuple[str, bool], list[Records]] = {}
    for group in by_settings(records, tuning=True):
        first = group[0]
        name = f"{method_title(first)}, {first['dataset']}, {first['head']} head"
        families.setdefault((name, is_trial(first)), []).append(group)
    return [
        curve
        for (name, trials), groups in families.items()
        for curve in _curves(
            f"{name}, trials" if trials and (name, False) in families else name, groups
        )
    ]


def _curves(family: str, groups: Sequence[Records]) -> Iterator[Curve]:
    settings = [_numbers(group[0]["settings"]) for group in groups]
    differing = [[_differ(one, other) for other in settings] for one in settings]
    neighbours = [
        {i: next(iter(names)) for i, names in enumerate(row) if len(names) == 1}
        for row in differing
    ]
    accuracy = [np.mean([record["average_accuracy"] for record in group]) for group in groups]
    base = max(range(len(groups)), key=lambda i: (len(neighbours[i]), accuracy[i]))
    for number in dict.fromkeys(neighbours[base].values()):
        members = [base, *(i for i, name in neighbours[base].items() if name == number)]
        members.sort(key=lambda i: _order(settings[i].get(number)))
        yield Curve(
            family,
            number,
            tuple(settings[i].get(number) for i in members),
            tuple(groups[i] for i in members),
            members.index(base),
        )


def _numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run may differ in by itself, with the defaults that a record leaves out."""
    numbers = independent(flattened(settings))
    unused = {row.name: row.unhashed for row in OPTIONS if numbers[row.name] is None}
    return numbers | unused


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    return {name for name in {**one, **other} if one.get(name) != other.get(name)}


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers in ascending order, then all else by its text."""
    is_number = _is_number(value)
    return (not is_number, float(value) if is_number else 0.0, str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _set_scale(axes: Axes, values: Sequence[Any]) -> None:
    """A logarithmic axis for positive numbers far apart, names in their order for what is none."""
    if not all(map(_is_number, values)):
        axes.xaxis.update_units([str(value) for value in sorted(set(values), key=_order)])
    elif min(values) > 0 and (ratio := max(values) / min(values)) >= _LOG_FROM:
        axes.set_xscale("log")
        subs = (1,) if ratio >= _FEWER_TICKS_FROM else (1, 2, 5)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.margins(x=0.1)


def _draw(column: Sequence[Axes], curve: Curve, look: Mapping[str, str]) -> None:
    """The weights as they are, and dashed their average where every record has one."""
    numeric = all(map(_is_number, curve.values))
    x = list(curve.values) if numeric else [str(value) for value in curve.values]
    averaged = all(AVERAGED in record for group in curve.groups for record in group)
    for axes, (metric, _, scale) in zip(column, _METRICS, strict=True):
        for kind, line in (("", "-"), ("averaged_", "--"))[: 1 + averaged]:
            mean, std = curve.mean_std(f"{kind}{metric}", scale)
            axes.errorbar(
                x, mean, yerr=std, color=look["color"], marker=look["marker"], linestyle=line,
                elinewidth=0.8, markerfacecolor="white", label=None if kind else curve.family,
            )  # fmt: skip
            axes.plot(
                x[curve.base], mean[curve.base], color=look["color"], marker=look["marker"],
                linestyle="none", zorder=3,
            )  # fmt: skip


def _caption(curves: Sequence[Curve]) -> str:
    seeds = sorted({len(group) for curve in curves for group in curve.groups})
    tuning = {is_trial(record) for curve in curves for group in curve.groups for record in group}
    where = {True: "what is held out for tuning", False: "the evaluated tasks"}
    return (
        f"Means and standard deviations over {' or '.join(map(str, seeds))} seeds on "
        f"{' and '.join(where[kind] for kind in sorted(tuning))}. Filled: the point at which the "
        "other numbers are held, the best one where there is no other. Dashed: the moving average "
        "of the weights."
    )
