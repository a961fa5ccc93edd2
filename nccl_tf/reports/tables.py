"""The tables of results: a row for each settings."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nccl_tf.experiment.config.settings import LATER, flattened
from nccl_tf.experiment.run.summary import AVERAGED
from nccl_tf.reports.records import by_settings, method_title
from nccl_tf.reports.table import Table, mean_std, or_dash

_NUMBERS = ("learning rate", "memory", "seeds", "accuracy %", "forgetting")
_TASKS = "total / tuning / evaluated"
_AVERAGED = ("averaged accuracy %", "averaged forgetting")
_STREAM = ("data set", "head", f"tasks: {_TASKS}", "examples a task")


def results_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each settings, mean ± population std over its seeds; each stream's best first.

    Accuracy is in percent, forgetting a fraction; "-" where it is undefined. Where rows
    would start with the same cells, the method is followed by what differs between them. Where a
    record has numbers of averaged weights, two more columns have them.
    """
    averaged = _AVERAGED if any(AVERAGED in record for record in records) else ()
    numbers = (*_NUMBERS, *averaged)
    by_first_cells: dict[tuple[str, ...], list[Sequence[Mapping[str, Any]]]] = {}
    for one in by_settings(records):
        by_first_cells.setdefault(_first_cells(one[0]), []).append(one)
    accuracies: dict[tuple[str, ...], float] = {}
    for first, groups in by_first_cells.items():
        changes = differences([group[0]["settings"] for group in groups])
        for group, change in zip(groups, changes, strict=True):
            row = (
                *first[: len(_STREAM)],
                ", ".join(filter(None, (first[len(_STREAM)], change))),
                *first[len(_STREAM) + 1 :],
                *_last_cells(group)[: len(numbers) - 2],
                _hash(group[0]),
            )
            accuracies[row] = float(np.mean([record["average_accuracy"] for record in group]))
    heads = list(dict.fromkeys(row[:2] for row in accuracies))
    rows = sorted(
        accuracies,
        key=lambda row: (
            heads.index(row[:2]),
            [int(count) for count in row[2].split(" / ")],
            (len(row[3]), row[3]),
            -accuracies[row],
        ),
    )
    names = (*_STREAM, "method", *numbers, "settings")
    return Table("results", "Results", names, tuple(rows), numbers)


def results_by_stream(records: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The rows of `results_table` in a table for each stream, whose title names it."""
    whole = results_table(records)
    streams: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in whole.rows:
        streams.setdefault(row[: len(_STREAM)], []).append(row[len(_STREAM) :])
    names = whole.names[len(_STREAM) :]
    return [
        Table(whole.name, _title(stream), names, tuple(rows), whole.numbers)
        for stream, rows in streams.items()
    ]


def _title(stream: tuple[str, ...]) -> str:
    dataset, head, tasks, examples = stream
    total, tuning, evaluated = tasks.split(" / ")
    return (
        f"{dataset} ({head}-head), {evaluated} tasks of {examples} examples "
        f"(in all {total}, for tuning {tuning})"
    )


def results_text(records: Sequence[Mapping[str, Any]]) -> str:
    """The rows of `results_table` for a terminal, at most 80 columns wide, ending in a newline."""
    lines = []
    for table in results_by_stream(records):
        lines += ["", table.title]
        lines.append(_line(("method", "rate", "memory", "n", "acc. %", "forgetting", "hash")))
        for cells in table.rows:
            lines.append(_line([*cells[: 1 + len(_NUMBERS)], cells[-1].strip("`")]))
            averaged = cells[1 + len(_NUMBERS) : -1]
            if averaged and averaged != ("-", "-"):
                lines.append(f"{'  averaged weights':<40}{averaged[0]:>12}{averaged[1]:>16}")
    return "\n".join([*lines[1:], ""])


def differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What differs between settings of a method, such as "beta_max 0.2"; "" where they are usual.

    Named are the values that at most half of the settings share, of the names that all have.

    Args:
        settings: As in `result.json`; earlier versions of the package have fewer names in it.
    """
    flat = [flattened(one) for one in settings]
    common = set.intersection(*map(set, flat))
    return [
        ", ".join(
            f"{name} {'default' if value is None else value}"
            for name, value in values.items()
            if name in common
            and not (value is None and name in LATER)
            and 2 * sum(other[name] == value for other in flat) <= len(flat)
        )
        for values in flat
    ]


def _line(cells: Sequence[str]) -> str:
    name, *numbers = cells
    widths = (7, 8, 4, 12, 16, 10)
    if len(name) > 20:  # on a line of its own, so that 80 columns hold
        name = f"{textwrap.fill(name, 80)}\n{'':<21}"
    return f"{name:<21}" + "".join(f"{c:>{w}}" for c, w in zip(numbers, widths, strict=True))


def _first_cells(first: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        first["dataset"],
        first["head"],
        f"{first['num_tasks']} / {first['tuning_tasks']} / {first['evaluated_tasks']}",
        str(first["settings"].get("examples_per_task") or "all"),
        method_title(first),
        f"{first['settings']['learning_rate']:g}",
        or_dash(first["settings"].get("memory_capacity")),
    )


def _last_cells(group: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Seeds, accuracy and forgetting, then both of the averaged weights."""
    kinds = ("", "averaged_") if AVERAGED in group[0] else ("",)
    numbers = [
        cell
        for kind in kinds
        for cell in (
            mean_std(group, f"{kind}average_accuracy", 100, 1),
            mean_std(group, f"{kind}forgetting", 1, 3),
        )
    ]
    return (str(len(group)), *numbers, *["-"] * (4 - len(numbers)))


def _hash(record: Mapping[str, Any]) -> str:
    return f"`{record['settings_hash'][:8]}`"
