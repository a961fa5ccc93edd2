"""The table of results: a row for each settings."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from nccl_tf.experiment.config.settings import flattened
from nccl_tf.experiment.run.record import AVERAGED
from nccl_tf.reports.records import by_settings, method_title
from nccl_tf.reports.table import Table, mean_std, or_dash

_NUMBERS = ("learning rate", "memory", "seeds", "accuracy %", "forgetting")
_TASKS = "total / tuning / evaluated"
_AVERAGED = ("averaged accuracy %", "averaged forgetting")
_FIRST_COLUMNS = ("data set", "head", f"tasks: {_TASKS}", "method")


def results_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each settings, mean ± population std over its seeds.

    Accuracy is in percent, forgetting a fraction; "-" where it is undefined. Where rows
    would start with the same cells, the method is followed by what differs between them. Where a
    record has numbers of averaged weights, two more columns have them.
    """
    averaged = _AVERAGED if any(AVERAGED in record for record in records) else ()
    numbers = (*_NUMBERS, *averaged)
    by_first_cells: dict[tuple[str, ...], list[Sequence[Mapping[str, Any]]]] = {}
    for group in by_settings(records):
        by_first_cells.setdefault(_first_cells(group[0]), []).append(group)
    rows = [
        (
            *first[:3],
            ", ".join(filter(None, (first[3], changes))),
            *first[4:],
            *_last_cells(group)[: len(numbers) - 2],
            _hash(group[0]),
        )
        for first, groups in by_first_cells.items()
        for group, changes in zip(
            groups, differences([group[0]["settings"] for group in groups]), strict=True
        )
    ]
    names = (*_FIRST_COLUMNS, *numbers, "settings")
    return Table("results", "Results", names, tuple(rows), numbers)


def results_text(records: Sequence[Mapping[str, Any]]) -> str:
    """The rows of `results_table` for a terminal, at most 80 columns wide, ending in a newline."""
    lines = []
    heading = None
    for dataset, head, tasks, *cells in results_table(records).rows:
        if heading != (dataset, head, tasks):
            heading = (dataset, head, tasks)
            lines += ["", f"{dataset} ({head}-head), tasks: {tasks} ({_TASKS})"]
            lines.append(_line(("method", "rate", "memory", "n", "acc. %", "forgetting", "hash")))
        lines.append(_line([*cells[: 1 + len(_NUMBERS)], cells[-1].strip("`")]))
        averaged = cells[1 + len(_NUMBERS) : -1]
        if averaged and averaged != ["-", "-"]:
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
            if name in common and 2 * sum(other[name] == value for other in flat) <= len(flat)
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
