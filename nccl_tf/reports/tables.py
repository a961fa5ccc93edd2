"""The tables of results: a row for each settings."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.methods.registry import METHODS
from nccl_tf.records.record import Record
from nccl_tf.records.settings import Settings
from nccl_tf.records.spread import spread
from nccl_tf.reports.costs import COSTS, cost_cells, times_over_finetuning
from nccl_tf.reports.labels import changes
from nccl_tf.reports.records import by_settings, method_title
from nccl_tf.reports.table import Table, mean_std, or_dash

_FIRST = ("learning rate", "memory")
_BUDGET = ("batch", "passes")
"""Columns of a table whose rows differ in them; else its title says them."""
_LAST = ("seeds", "accuracy %", "forgetting")
_TASKS = "total / tuning / evaluated"
_AVERAGED = ("averaged accuracy %", "averaged forgetting")
_METRICS = {
    "accuracy %": ("average_accuracy", 1),
    "forgetting": ("forgetting", -1),
    "averaged accuracy %": ("averaged_average_accuracy", 1),
    "averaged forgetting": ("averaged_forgetting", -1),
}
"""Columns with the name in a record, and 1 where more of it is better."""
_OF_COLUMNS = ("label", "domain", "by", "positive")
"""Settings of the columns of a table that make a stream of it."""
_STREAM = ("data set", "head", f"tasks: {_TASKS}", "examples a task")


class _Row(NamedTuple):
    """A row of a table of results: the cells that name its stream, the others, and its runs."""

    stream: tuple[str, ...]
    method: str
    first: tuple[str, ...]
    budget: tuple[int, int]
    last: tuple[str, ...]
    records: Sequence[Record]

    def cells(self, has_budget: bool) -> tuple[str, ...]:
        """Those of the row, with batch and passes or without."""
        budget = map(str, self.budget) if has_budget else ()
        return (self.method, *self.first, *budget, *self.last)


def results_table(records: Sequence[Record], among: Sequence[Record] | None = None) -> Table:
    """A row for each settings, mean ± population std over its seeds; each stream's best first.

    Accuracy is in percent, forgetting a fraction; "-" where it is undefined. The method is followed
    by what differs from its defaults. Where a record has numbers of averaged weights, two more
    columns have them. The last ones are `COSTS`.

    Args:
        records: Of finished runs.
        among: Runs among which those of fine-tuning are that times are compared with; None for
            `records`.
    """
    rows = _rows(records, among)
    numbers = _numbers(records, rows)
    cells = tuple((*row.stream, *row.cells(_differs(rows))) for row in rows)
    names = (*_STREAM, "method", *numbers, "settings")
    return Table("results", f"Results{_caption(rows)}", names, cells, numbers)


def results_by_stream(records: Sequence[Record]) -> list[Table]:
    """The rows of `results_table` in a table for each stream, whose title names it.

    The best of each column is bold, and what is within one standard error of it. Batch and passes
    stand in the title, or in columns where they differ.
    """
    streams: dict[tuple[str, ...], list[_Row]] = {}
    for row in _rows(records):
        streams.setdefault(row.stream, []).append(row)
    tables = []
    for stream, rows in streams.items():
        numbers = _numbers(records, rows)
        cells = tuple(row.cells(_differs(rows)) for row in rows)
        tables.append(
            Table(
                "results", f"{_title(stream)}{_caption(rows)}", ("method", *numbers, "settings"),
                cells, numbers, (), _best(rows, numbers),
            )
        )  # fmt: skip
    return tables


def _numbers(records: Sequence[Record], rows: Sequence[_Row]) -> tuple[str, ...]:
    """Names of the columns of numbers."""
    budget = _BUDGET if _differs(rows) else ()
    return (*_FIRST, *budget, *_LAST, *(_AVERAGED if _has_averages(records) else ()), *COSTS)


def _has_averages(records: Sequence[Record]) -> bool:
    return any(record.averaged_accuracy_matrix for record in records)


def _differs(rows: Sequence[_Row]) -> bool:
    """Whether rows differ in batch or passes."""
    return len({row.budget for row in rows}) > 1


def _caption(rows: Sequence[_Row]) -> str:
    """The batch and the passes of rows that have the same; "" where they differ."""
    if not rows or _differs(rows):
        return ""
    batch, passes = rows[0].budget
    return f", batches of {batch}, {'one pass' if passes == 1 else f'{passes} passes'}"


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
    count = len(_LAST) + (len(_AVERAGED) if _has_averages(records) else 0)
    ratios = times_over_finetuning(by_settings(records if among is None else among))
    by_first_cells: dict[tuple[Any, ...], list[Sequence[Record]]] = {}
    for one in by_settings(records):
        by_first_cells.setdefault(_first_cells(one[0]), []).append(one)
    rows = []
    for (stream, method, first, budget), groups in by_first_cells.items():
        for group, change in zip(groups, changes(groups), strict=True):
            title = ", ".join(filter(None, (method, change)))
            last = (*_last_cells(group)[:count], *cost_cells(group, ratios), _hash(group[0]))
            rows.append(_Row(stream, title, first, budget, last, group))
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
    of its mean; training on all examples, which forgets nothing by its nature, is not compared."""
    result = set()
    for name, (metric, sign) in _METRICS.items():
        if name not in numbers:
            continue
        known = {
            place: spread([sign * getattr(record, metric) for record in row.records])
            for place, row in enumerate(rows)
            if not (is_joint(row.records[0]) or is_cumulative(row.records[0]))
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


def is_cumulative(record: Record) -> bool:
    """Whether the run learned at every task all examples so far."""
    method = METHODS.get(record.method)
    return method is not None and method.joins


def stream_title(record: Record) -> str:
    """Data set, head and numbers of tasks and examples of a record's stream."""
    return _title(_first_cells(record)[0])


def stream_names(record: Record) -> tuple[str, str]:
    """Data set and head of a record's stream, and its examples a task, "all" for every one."""
    dataset, head, _, examples = _first_cells(record)[0]
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
        lines += ["", *textwrap.wrap(table.title, 80)]
        lines.append(_line(("method", "rate", "memory", "n", "acc. %", "forgetting", "hash")))
        for row in table.rows:
            cells = dict(zip(table.names, row, strict=True))
            budget = [f"{name} {cells[name]}" for name in _BUDGET if name in cells]
            title = ", ".join((cells["method"], *budget))
            numbers = [cells[name] for name in (*_FIRST, *_LAST)]
            lines.append(_line([title, *numbers, cells["settings"].strip("`")]))
            averaged = [cells[name] for name in _AVERAGED if name in cells]
            if averaged and averaged != ["-", "-"]:
                lines.append(f"{'  averaged weights':<40}{averaged[0]:>12}{averaged[1]:>16}")
    return "\n".join([*lines[1:], ""])


def _line(cells: Sequence[str]) -> str:
    name, *numbers = cells
    widths = (7, 8, 4, 12, 16, 10)
    if len(name) > 20:  # on a line of its own, so that 80 columns hold
        name = f"{textwrap.fill(name, 80)}\n{'':<21}"
    return f"{name:<21}" + "".join(f"{c:>{w}}" for c, w in zip(numbers, widths, strict=True))


def _first_cells(
    first: Record,
) -> tuple[tuple[str, ...], str, tuple[str, ...], tuple[int, int]]:
    """The cells of a stream, the method, those of rate and memory, and batch and passes."""
    settings = first.settings
    stream = (
        ", ".join((first.dataset, *_cut(settings))),
        first.head,
        f"{first.num_tasks} / {first.tuning_tasks} / {first.evaluated_tasks}",
        str(settings.examples_per_task or "all"),
    )
    numbers = (f"{settings.learning_rate:g}", or_dash(settings.memory_capacity))
    return stream, method_title(first), numbers, (settings.batch_size, settings.epochs)


def _cut(settings: Settings) -> list[str]:
    """How a stream is made of its data set, where the data set leaves a choice."""
    # The usual angles of a rotated stream are None.
    words = [f"{settings.angles} angles"] if settings.angles else []
    if settings.kind not in (None, "split") and settings.domain is None:
        words.append(settings.kind)
    if settings.image_size is not None:
        words.append(f"{settings.image_size} pixels")
    named = ((name, getattr(settings, name)) for name in _OF_COLUMNS)
    words += [f"{name} {value}" for name, value in named if value is not None]
    # Of files under one name that were others.
    return words + ([f"content {settings.content[:8]}"] if settings.content else [])


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
