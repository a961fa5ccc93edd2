"""Measured gradient norms against the theorem's bound, task by task."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.record import Record
from nccl_tf.reports.figures.diagnostics_data import (
    Group,
    describe_settings,
    group_records,
    rows,
)
from nccl_tf.reports.figures.figure2 import add_caption
from nccl_tf.reports.figures.style import (
    PAPER_WIDTH,
    method_style,
    new_figure,
    paper_style,
)
from nccl_tf.theory import bounds, estimates


class Window(NamedTuple):
    """A task k from the second on, with f the mean loss on the tasks before it.

    Attributes:
        measured: The smaller |grad f|^2 of those at its beginning and at its end.
        bound: The theorem's bound on min_t |grad f(x^t)|^2, as printed, without B.
        bound_with_b: The bound with the sum of B, T times the mean B over the draws at the end.
    """

    measured: float
    bound: float
    bound_with_b: float


def windows(record: Record) -> list[Window] | None:
    """The bound of every task from the second on, from one record.

    Delta_f is f at the task's beginning, which bounds it from above; sigma_f^2 the largest over the
    task ends, from the errors of the draws; T the task's steps, Gamma in its surrogate form.

    Returns:
        None for a method whose alpha_H is not constant in any form, or 0: the theorem is silent.
    """
    alpha = _alpha(record)
    if alpha is None:
        return None
    ends = rows(record)
    size = record.settings.memory_batch_size or 0
    variance = max(
        estimates.variance_from_errors(
            float(np.mean(row["draws"]["error_squared"])), row["previous"]["examples"], size
        )
        for row in ends[1:]
    )
    result = []
    for before, row in pairwise(ends):
        steps = row["steps"] - before["steps"]
        arguments = (
            before["seen"]["loss"], row["gamma_surrogate"] - before["gamma_surrogate"],
            variance, alpha, steps, row["smoothness"],
        )  # fmt: skip
        b = steps * float(np.mean(row["draws"]["overfitting"]))
        norms = before["seen"]["gradient_norm"], row["previous"]["gradient_norm"]
        result.append(
            Window(
                min(norms) ** 2,
                bounds.minimum_bound(*arguments),
                bounds.minimum_bound(*arguments, overfitting_sum=b),
            )
        )
    return result


def step_bound_violations(group: Group) -> float:
    """Share of the measured steps whose |F|^2 exceeds the lemma's bound; nan if none has one."""
    measured = [row for record in group.records for row in rows(record)[1:]]
    norms = np.array([row["previous"]["gradient_norm"] ** 2 for row in measured])
    limits = np.array([row["step_bound"] for row in measured], float)
    return bounds.violation_rate(norms, limits)


def bound_figure(records: Sequence[Record]) -> Figure:
    """A panel for each method that the theorem speaks of: measured, and both bounds.

    Raises:
        UserError: No record has diagnostics, or none is of such a method.
    """
    measured = []
    for group in group_records(records):
        values = [windows(record) for record in group.records if len(rows(record)) > 1]
        if values and all(values):
            measured.append((group, np.array(values)))
    if not measured:
        raise UserError(
            "no record with diagnostics of two tasks or more is of NCCL or experience replay, "
            "which alone have the theorem's constant alpha_H above 0"
        )
    with paper_style():
        columns = min(len(measured), 3)
        lines = -(-len(measured) // columns)
        figure = new_figure((PAPER_WIDTH, 1.1 + 1.9 * lines))
        panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for axes in panels[len(measured) :]:
            axes.remove()
        for axes, (group, norms) in zip(panels, measured, strict=False):
            _panel(axes, group, norms.mean(0))
        handles, _ = panels[0].get_legend_handles_labels()
        figure.legend(handles=handles, loc="outside upper center", ncols=3)
        shares = ", ".join(f"{g.title} {step_bound_violations(g):.0%}" for g, _ in measured)
        add_caption(
            figure,
            f"{describe_settings([group for group, _ in measured])} In task k, f is the mean loss "
            "on the tasks before it; mean over seeds; measured at the beginning and the end of the "
            "task only, so that the minimum over its steps can be lower. Share of single steps "
            f"whose squared norm is above the step bound: {shares}.",
        )
    return figure


def _panel(axes: Any, group: Group, mean: np.ndarray) -> None:
    tasks, color = 2 + np.arange(len(mean)), method_style(group.method)["color"]
    axes.plot(tasks, mean[:, 0], label=r"measured $\min_t\Vert\nabla f\Vert^2$", color=color,
              marker="o")  # fmt: skip
    axes.plot(tasks, mean[:, 1], label="theorem's bound", color=color, linestyle="--")
    axes.plot(tasks, mean[:, 2], label=r"with $\sum B_t$", color=color, linestyle=":")
    axes.set(title=group.title, xlabel="task k", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.get_major_locator().set_params(integer=True)


def _alpha(record: Record) -> float | None:
    """The constant alpha_H: NCCL's alpha in the surrogate form, and ER's share of it."""
    ends = rows(record)
    method = METHODS.get(record.method)
    if method is not None and method.alpha_l_below_one:
        return ends[-1]["alpha"]
    if record.diagnostics["form"] == "joint" and len(ends) > 1:
        return ends[-1]["draws"]["alpha_h"][0]
    return None
