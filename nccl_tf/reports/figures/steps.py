"""Step sizes, cosine and branches of one run over time, from its steps.csv."""

import csv
import math
from array import array
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nccl_tf.errors import UserError, one_line
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.record import Record
from nccl_tf.reports.figures.figure2 import add_caption
from nccl_tf.reports.figures.style import (
    PAPER_WIDTH,
    method_style,
    new_figure,
    paper_style,
)

PANELS = (
    ("alpha_h", r"$\alpha_H$", "Step size of the memory gradient"),
    ("beta_h", r"$\beta_H$", "Step size of the stream gradient"),
    ("cosine", r"$\cos(f_I, g_J)$", "Cosine between the two gradients"),
    ("interference", "share", "Steps with interference"),
)


def read_steps(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The columns of a steps.csv by name, floats, nan where a window measured nothing.

    Args:
        path: The file.
        names: Of the columns to read, of those that it has; None for all.

    Raises:
        UserError: The file cannot be read, or is no such table.
    """
    try:
        with path.open(encoding="utf-8", newline="") as text:
            return _columns(csv.reader(text), names)
    except (OSError, ValueError, csv.Error) as error:
        reason = one_line(str(error))  # It may cite a cell, of any length.
        raise UserError(f"cannot read the steps in {path} ({reason}): restore it") from error


def _columns(rows: Iterator[list[str]], names: Collection[str] | None) -> dict[str, np.ndarray]:
    """Row by row, because the text of all cells takes many times the memory of the file."""
    head = next(rows, [])
    if not head:
        raise ValueError("it is empty")
    columns = {i: array("d") for i, name in enumerate(head) if names is None or name in names}
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"a row has {len(row)} cells, not {len(head)}")
        for i, column in columns.items():
            column.append(float(row[i]) if row[i] else math.nan)
    return {head[i]: np.array(column) for i, column in columns.items()}


def steps_figure(record: Record, steps: Mapping[str, np.ndarray]) -> Figure:
    """Four panels over the steps: alpha_H, beta_H, the cosine, and the share of interference.

    Args:
        record: Of the run.
        steps: Its columns, as `read_steps` gives them.

    Raises:
        UserError: The method has no alpha_H and beta_H.
    """
    title = METHODS[record.method].title
    if any(f"{name}_mean" not in steps for name, *_ in PANELS):
        raise UserError(
            f"{title} measures no alpha_H and beta_H at its steps: choose a run of one of "
            f"{', '.join(_measuring())} with --method"
        )
    color = method_style(record.method)["color"]
    ends = np.cumsum(record.task_steps or [])[:-1]
    with paper_style():
        figure = new_figure((PAPER_WIDTH, 5.4))
        panels = figure.subplots(len(PANELS), 1, sharex=True)
        for axes, (name, label, words) in zip(panels, PANELS, strict=True):
            axes.plot(steps["step"], steps[f"{name}_mean"], color=color)
            if name != "interference":
                low, high = steps[f"{name}_min"], steps[f"{name}_max"]
                axes.fill_between(steps["step"], low, high, color=color, alpha=0.2, lw=0)
            axes.set(title=words, ylabel=label)
            for end in ends:
                axes.axvline(end, color="0.8", linewidth=0.6, zorder=0)
        # Of one task no step replays, and alpha_H is 0; where nothing was measured it is nan.
        is_log = record.method.startswith("nccl") and np.any(steps["alpha_h_mean"] > 0)
        panels[0].set_yscale("log" if is_log else "linear")
        panels[-1].set(xlabel="training step", ylim=(0, 1))
        numbers = record.settings.hyperparameters
        add_caption(
            figure,
            f"{title} on {record.dataset} ({record.head}-head), seed {record.seed}, "
            f"alpha = {record.settings.learning_rate:g}, L = {numbers['smoothness']:g}. "
            f"Lines: mean over {record.options['record_every']} steps; shades: least and "
            "greatest in them; grey lines: ends of tasks. Interference: share of steps with "
            "<f_I, g_J> at or below 0.",
        )
    return figure


def _measuring() -> list[str]:
    """The methods with step sizes for two gradients, whose Gamma takes an L."""
    return [
        method.name
        for method in METHODS.values()
        if any(row.name == "smoothness" for row in method.hyperparameters)
    ]
