"""Measured gradient norms against the theorem's bound, task by task."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.record import Record
from nccl_tf.records.spread import spread
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
from nccl_tf.reports.table import Table
from nccl_tf.theory import bounds, estimates


class Window(NamedTuple):
    """A task k from the second on, with f the mean loss on the tasks before it.

    Attributes:
        measured: The smaller |grad f|^2 of those at its beginning and at its end.
        bound: The theorem's bound on min_t |grad f(x^t)|^2, as printed, without B.
        bound_with_b: The bound with the sum of B, T times the mean B over the draws at the end.
        variance: sigma_f^2.
        best_alpha: The learning rate with which the bound is the least; nan where none is.
    """

    measured: float
    bound: float
    bound_with_b: float
    variance: float
    best_alpha: float


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
                variance,
                bounds.best_c(*arguments[:3], row["smoothness"]) / math.sqrt(steps),
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
    measured = _measured(records)
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


def bound_table(records: Sequence[Record]) -> Table:
    """What the theorem and its terms come to: a row for each method that `bound_figure` draws.

    Raises:
        UserError: As `bound_figure`.
    """
    cells = []
    for group, values in _measured(records):
        mean = Window(*spread(values.reshape(-1, values.shape[-1])).mean)
        calls = spread([_oracle_calls(record) for record in group.records]).mean
        numbers = (
            rows(group.records[0])[-1]["smoothness"], mean.variance, mean.measured, mean.bound,
            mean.bound_with_b, _alpha(group.records[0]), mean.best_alpha,
            _mean_of_draws(group, "gamma_raw"), _mean_of_draws(group, "gamma_least"),
        )  # fmt: skip
        cells.append((group.title, *map(_number, numbers), f"{calls:,.0f}"))
    names = (
        "method", "L", "variance σ²", "measured ‖∇f‖²", "bound", "with ΣB", "α_H", "best α",
        "Γ of a draw", "least Γ", "oracle calls",
    )  # fmt: skip
    note = (
        "Means over tasks from the second on and seeds; the best α makes the bound the least, the "
        "least Γ is over all β_H at the same α_H; oracle calls are the gradients of single "
        "examples in a run, stream and memory together."
    )
    return Table("bound", "The theorem's terms", names, tuple(cells), names[1:], (note,))


def _measured(records: Sequence[Record]) -> list[tuple[Group, np.ndarray]]:
    """The groups that the theorem speaks of, each with its windows [seeds, tasks, entries]."""
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
    return measured


def _oracle_calls(record: Record) -> int:
    """Of a run whose first task has nothing to replay."""
    settings, first = record.settings, (record.task_steps or [0])[0]
    return estimates.oracle_calls(first, 0, settings.batch_size) + estimates.oracle_calls(
        record.steps - first, settings.memory_batch_size or 0, settings.batch_size
    )


def _mean_of_draws(group: Group, name: str) -> float:
    """nan where the records are older than the measurement."""
    ends = [row for record in group.records for row in rows(record)[1:]]
    return float(spread([spread(row["draws"].get(name, [])).mean for row in ends]).mean)


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.3g}"


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
