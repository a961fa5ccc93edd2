"""Figure 2 of the paper, drawn from records: forgetting against the sum of Gamma."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nccl_tf.records.record import Record
from nccl_tf.records.spread import spread
from nccl_tf.reports.figures.correlation import Pairs, describe_correlation
from nccl_tf.reports.figures.diagnostics_data import (
    Group,
    describe_settings,
    group_records,
)
from nccl_tf.reports.figures.style import (
    PAPER_WIDTH,
    REFERENCE_COLOR,
    method_style,
    new_figure,
    paper_style,
)

_SUM = r"$\sum\,\Gamma_t$"
_NORM = r"$\Vert\nabla f(x)\Vert$ on task 1"
_TITLES = (
    "Forgetting of each run", "Growth over the tasks", "Test loss of the first task",
    "Gradient: ring or no memory", "Gradient: reservoir", "Overfitting term",
)  # fmt: skip


def figure2(records: Sequence[Record], smoothness: float | None = None) -> Figure:
    """The six panels (a) to (f), across both columns of a paper.

    (a) forgetting against the sum of Gamma at the end of training; (b) that sum over the tasks; (c)
    test loss against gradient norm of the first task at task ends, full at the last; (d) the
    gradient norm against the sum, of methods with a ring or without a memory, and (e) with a
    reservoir (the paper does not tell (d) from (e): E21); (f) B_t at task ends, mean and quartiles
    over draws and seeds.

    Args:
        records: Of finished runs.
        smoothness: L that Gamma and B are taken at; None for the L of the runs.

    Raises:
        UserError: No record has diagnostics, or they are of several data sets.
    """
    groups = group_records(records)
    with paper_style():
        figure = new_figure((PAPER_WIDTH, 5.6))
        panels = figure.subplots(2, 3).ravel()
        notes = [
            _forgetting(panels[0], groups, smoothness),
            _growth(panels[1], groups, smoothness),
            _test_loss(panels[2], groups),
            _norms(panels[3], [g for g in groups if not g.has_reservoir], smoothness),
            _norms(panels[4], [g for g in groups if g.has_reservoir], smoothness),
            _overfitting(panels[5], groups, smoothness),
        ]
        for letter, title, axes in zip("abcdef", _TITLES, panels, strict=True):
            axes.set_title(f"({letter}) {title}")
        handles = [
            panels[0].plot([], [], label=group.title, **method_style(group.method))[0]
            for group in groups
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(groups), 6))
        text = f"{describe_settings(groups, smoothness)} {' '.join(note for note in notes if note)}"
        add_caption(figure, text)
    return figure


def add_caption(figure: Figure, text: str) -> None:
    """Put a caption below the panels."""
    lines = textwrap.fill(text, int(figure.get_figwidth() * 18.5))
    figure.supxlabel(lines, x=0.01, ha="left", fontsize=7)


def _forgetting(axes: Axes, groups: Sequence[Group], smoothness: float | None) -> str:
    points = []
    for group in groups:
        ends = group.gamma(smoothness)[:, -1]
        forgetting = np.array([r.forgetting for r in group.records], float)
        points.append((ends, forgetting))
        axes.plot(ends, forgetting, linestyle="", **method_style(group.method))
    axes.set(xlabel=f"{_SUM} at the end", ylabel="forgetting")
    return f"(a) a point a run; {describe_correlation(_by_method(groups, points))}."


def _by_method(groups: Sequence[Group], points: Sequence[Pairs]) -> dict[str, Pairs]:
    """One pair of values of each run, all settings of a method together."""
    result: dict[str, Pairs] = {}
    for group, (x, y) in zip(groups, points, strict=True):
        earlier = result.get(group.method, (x[:0], y[:0]))
        result[group.method] = np.append(earlier[0], x), np.append(earlier[1], y)
    return result


def _growth(axes: Axes, groups: Sequence[Group], smoothness: float | None) -> str:
    for group in groups:
        sums = group.gamma(smoothness)
        tasks, (mean, std, _) = 1 + np.arange(sums.shape[1]), spread(sums)
        look = method_style(group.method)
        axes.plot(tasks, mean, **look)
        axes.fill_between(tasks, mean - std, mean + std, color=look["color"], alpha=0.2, lw=0)
    axes.set(xlabel="tasks trained", ylabel=_SUM)
    axes.xaxis.get_major_locator().set_params(integer=True)
    return "(b) from the second task on, mean and std over seeds."


def _test_loss(axes: Axes, groups: Sequence[Group]) -> str:
    points = []
    for group in groups:
        norms = group.series("first_task", "gradient_norm")
        losses = group.series("first_task", "test_loss")
        points.append((norms[:, -1], losses[:, -1]))
        look = {**method_style(group.method), "linestyle": "", "markeredgewidth": 0}
        axes.plot(norms.ravel(), losses.ravel(), alpha=0.25, ms=2.5, **look)
        axes.plot(*points[-1], zorder=3, **look)
    axes.set(xlabel=_NORM, ylabel="test loss on task 1")
    correlation = describe_correlation(_by_method(groups, points))
    return f"(c) a pale point a task end and run, full at the last one, of which: {correlation}."


def _norms(axes: Axes, groups: Sequence[Group], smoothness: float | None) -> str:
    axes.set(xlabel=_SUM, ylabel=_NORM)
    if not groups:
        axes.text(0.5, 0.5, "no such method", ha="center", transform=axes.transAxes)
        return ""
    for group in groups:
        sums = group.gamma(smoothness).mean(0)
        norms = group.series("first_task", "gradient_norm").mean(0)
        axes.plot(sums, norms, **method_style(group.method))
    first = np.concatenate([g.series("first_task", "gradient_norm")[:, 0] for g in groups])
    axes.axhline(first.mean(), color=REFERENCE_COLOR, linewidth=1, linestyle="--")
    if groups[0].has_reservoir:
        return "(e) the same of methods with a reservoir."
    return (
        "(d) a point a task end, mean over seeds, of methods with a ring or no memory; dashed: "
        "right after task 1."
    )


def _overfitting(axes: Axes, groups: Sequence[Group], smoothness: float | None) -> str:
    values, gammas = [], []
    for group in groups:
        look = method_style(group.method)
        each = group.drawn("overfitting", smoothness)
        if not len(each):
            continue
        tasks = 2 + np.arange(len(each))
        axes.plot(tasks, each.mean(1), **look)
        low, high = np.quantile(each, [0.25, 0.75], axis=1)
        axes.fill_between(tasks, low, high, color=look["color"], alpha=0.15, lw=0)
        values.append(each.ravel())
        gammas.append(group.drawn("gamma_surrogate", smoothness).ravel())
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set(xlabel="task", ylabel="$B_t$ at its end")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if not values:
        return ""
    b, gamma = np.concatenate(values), np.concatenate(gammas)
    return (
        f"(f) mean and quartiles over memory draws and seeds; {np.mean(b < 0):.0%} of {b.size:,} "
        f"Bₜ are negative, mean {b.mean():.2g}, mean size {np.abs(b).mean():.2g}; Γₜ of the "
        f"same steps: mean {gamma.mean():.2g}, mean size {np.abs(gamma).mean():.2g}."
    )
