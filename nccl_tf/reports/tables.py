"""The tables of results: a row for each settings."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.methods.registry import METHODS
from nccl_tf.records.record import Record
from nccl_tf.records.settings import flattened
from nccl_tf.records.spread import spread
from nccl_tf.reports.costs import COSTS, cost_cells, times_over_finetuning
from nccl_tf.reports.records import (
    by_settings,
    method_title,
)
from nccl_tf.reports.table import Table, mean_std, or_dash

_NUMBERS = ("learning rate", "memory", "seeds", "accuracy %", "forgetting")
_TASKS = "total / tuning / evaluated"
_AVERAGED = ("averaged accuracy %", "averaged forgetting")
_METRICS = {
    "accuracy %": ("average_accuracy", 1),
    "forgetting": ("forgetting", -1),
    "averaged accuracy %": ("averaged_average_accuracy", 1),
    "averaged forgetting": ("averaged_forgetting", -1),
}
"""Columns with the name in a record, and 1 where more of it is better."""
_STREAM = ("data set", "head", f"tasks: {_TASKS}", "examples a task")


class _Row(NamedTuple):
    """A row of a table of results: the cells that name its stream, the others, and its runs."""

    stream: tuple[str, ...]
    cells: tuple[str, ...]
    records: Sequence[Record]


def results_table(records: Sequence[Record], among: Sequence[Record] | None = None) -> Table:
    """A row for each settings, mean ± population std over its seeds; each stream's best first.

    Accuracy is in percent, forgetting a fraction; "-" where it is undefined. Where rows
    would start with the same cells, the method is followed by what differs between them. Where a
    record has numbers of averaged weights, two more columns have them. The last ones are `COSTS`.

    Args:
        records: Of finished runs.
        among: Runs among which those of fine-tuning are that times are compared with; None for
            `records`.
    """
    numbers = (*_numbers(records), *COSTS)
    rows = tuple((*row.stream, *row.cells) for row in _rows(records, among))
    names = (*_STREAM, "method", *numbers, "settings")
    return Table("results", "Results", names, rows, numbers)


def results_by_stream(records: Sequence[Record]) -> list[Table]:
    """The rows of `results_table` in a table for each stream, whose title names it.

    The best of each column is bold, and what is within one standard error of it.
    """
    numbers = (*_numbers(records), *COSTS)
    streams: dict[tuple[str, ...], list[_Row]] = {}
    for row in _rows(records):
        streams.setdefault(row.stream, []).append(row)
    tables = []
    for stream, rows in streams.items():
        cells = tuple(row.cells for row in rows)
        tables.append(
            Table(
                "results", _title(stream), ("method", *numbers, "settings"), cells,
                numbers, (), _best(rows, numbers),
            )
        )  # fmt: skip
    return tables


def _numbers(records: Sequence[Record]) -> tuple[str, ...]:
    """Names of the columns of numbers."""
    return (
        *_NUMBERS,
        *(_AVERAGED if any(record.averaged_accuracy_matrix for record in records) else ()),
    )


def for_a_paper(table: Table) -> Table:
    """A table of `results_by_stream` without learning rates, costs and hashes."""
    left_out = {"learning rate", "settings", *COSTS}
    places = [place for place, name in enumerate(table.names) if name not in left_out]
    return replace(
        table,
        names=tuple(table.names[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in table.rows),
        bold=frozenset((i, places.index(j)) for i, j in table.bold),
    )


def _rows(records: Sequence[Record], among: Sequence[Record] | None = None) -> list[_Row]:
    count = len(_numbers(records)) - 2
    ratios = times_over_finetuning(by_settings(records if among is None else among))
    by_first_cells: dict[tuple[str, ...], list[Sequence[Record]]] = {}
    for one in by_settings(records):
        by_first_cells.setdefault(_first_cells(one[0]), []).append(one)
    rows = []
    for first, groups in by_first_cells.items():
        stream, (method, *others) = first[: len(_STREAM)], first[len(_STREAM) :]
        changes = differences([group[0].settings_json for group in groups])
        for group, change in zip(groups, changes, strict=True):
            title = ", ".join(filter(None, (method, change)))
            last = _last_cells(group)[:count]
            costs = cost_cells(group, ratios)
            rows.append(_Row(stream, (title, *others, *last, *costs, _hash(group[0])), group))
    heads = list(dict.fromkeys(row.stream[:2] for row in rows))
    return sorted(
        rows,
        key=lambda row: (
            heads.index(row.stream[:2]),
            [int(count) for count in row.stream[2].split(" / ")],
            (len(row.stream[3]), row.stream[3]),
            -float(np.mean([record.average_accuracy for record in row.records])),
        ),
    )


def _best(rows: Sequence[_Row], numbers: Sequence[str]) -> frozenset[tuple[int, int]]:
    """Places (row, column) of the best of each metric, and of what is within one standard error
    of its mean; joint training, which forgets nothing by its nature, is not compared."""
    result = set()
    for name, (metric, sign) in _METRICS.items():
        if name not in numbers:
            continue
        known = {
            place: spread([sign * getattr(record, metric) for record in row.records])
            for place, row in enumerate(rows)
            if not is_joint(row.records[0])
            and all(getattr(record, metric) is not None for record in row.records)
        }
        if not known:
            continue
        best = max(known.values(), key=lambda value: value.mean)
        least = best.mean - (best.error if best.size > 1 else 0.0)
        column = 1 + numbers.index(name)
        result |= {(i, column) for i, value in known.items() if value.mean >= least}
    return frozenset(result)


def is_joint(record: Record) -> bool:
    """Whether the run learned all tasks at once, which is no continual learning."""
    method = METHODS.get(record.method)
    return method is not None and method.joint


def stream_title(record: Record) -> str:
    """Data set, head and numbers of tasks and examples of a record's stream."""
    return _title(_first_cells(record)[: len(_STREAM)])


def stream_names(record: Record) -> tuple[str, str]:
    """Data set and head of a record's stream, and its examples a task, "all" for every one."""
    dataset, head, _, examples, *_ = _first_cells(record)
    return f"{dataset} ({head}-head)", examples


def _title(stream: tuple[str, ...]) -> str:
    dataset, head, tasks, examples = stream
    total, tuning, evaluated = tasks.split(" / ")
    return (
        f"{dataset} ({head}-head), {evaluated} tasks of {examples} examples "
        f"(in all {total}, for tuning {tuning})"
    )


def results_text(records: Sequence[Record]) -> str:
    """The rows of `results_table` for a terminal, at most 80 columns wide, ending in a newline."""
    lines = []
    for table in results_by_stream(records):
        lines += ["", table.title]
        lines.append(_line(("method", "rate", "memory", "n", "acc. %", "forgetting", "hash")))
        for cells in table.rows:
            lines.append(_line([*cells[: 1 + len(_NUMBERS)], cells[-1].strip("`")]))
            averaged = cells[1 + len(_NUMBERS) : -1 - len(COSTS)]
            if averaged and averaged != ("-", "-"):
                lines.append(f"{'  averaged weights':<40}{averaged[0]:>12}{averaged[1]:>16}")
    return "\n".join([*lines[1:], ""])


def differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Differences between settings of a method, such as "beta_max 0.2"; "" for the usual ones.

    Named are the values that at most half of the settings share. None is the default of a
    hyperparameter; of another setting it means that the run has none, which is not named.

    Args:
        settings: As in `result.json`; where one lacks a name, its value counts as None.
    """
    flat = [flattened(one) for one in settings]
    names = set().union(*flat)
    counts = Counter((name, _key(one.get(name))) for one in flat for name in names)
    return [
        ", ".join(
            f"{name} {'default' if value is None else value}"
            for name, value in flattened(one).items()
            if (value is not None or name in one["hyperparameters"])
            and 2 * counts[name, _key(value)] <= len(settings)
        )
        for one in settings
    ]


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _line(cells: Sequence[str]) -> str:
    name, *numbers = cells
    widths = (7, 8, 4, 12, 16, 10)
    if len(name) > 20:  # on a line of its own, so that 80 columns hold
        name = f"{textwrap.fill(name, 80)}\n{'':<21}"
    return f"{name:<21}" + "".join(f"{c:>{w}}" for c, w in zip(numbers, widths, strict=True))


def _first_cells(first: Record) -> tuple[str, ...]:
    # The usual angles of a rotated stream are None.
    angles = first.settings.angles
    return (
        first.dataset + (f", {angles} angles" if angles else ""),
        first.head,
        f"{first.num_tasks} / {first.tuning_tasks} / {first.evaluated_tasks}",
        str(first.settings.examples_per_task or "all"),
        method_title(first),
        f"{first.settings.learning_rate:g}",
        or_dash(first.settings.memory_capacity),
    )


def _last_cells(group: Sequence[Record]) -> tuple[str, ...]:
    """Seeds, accuracy and forgetting, then both of the averaged weights."""
    kinds = ("", "averaged_") if group[0].averaged_accuracy_matrix else ("",)
    numbers = [
        cell
        for kind in kinds
        for cell in (
            mean_std(group, f"{kind}average_accuracy", 100, 1),
            mean_std(group, f"{kind}forgetting", 1, 3),
        )
    ]
    return (str(len(group)), *numbers, *["-"] * (4 - len(numbers)))


def _hash(record: Record) -> str:
    return f"`{record.settings_hash[:8]}`"
