"""The records below a folder, and the table of them."""

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.experiment.run.record import FILE_NAME, read_record
from nccl_tf.methods.registry import METHODS
from nccl_tf.reports.differences import differences
from nccl_tf.reports.table import Table
from nccl_tf.reports.terminal import mean_std, or_dash
from nccl_tf.streams.catalog import DATASETS

_NUMBERS = ("learning rate", "memory", "seeds", "accuracy %", "forgetting")
_TASKS = "total / tuning / evaluated"
_COLUMNS = ("data set", "head", f"tasks: {_TASKS}", "method", *_NUMBERS, "settings")


def read_records(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """As `find_records`, where there has to be a record.

    Raises:
        UserError: The folder is missing or holds no record that is whole.
    """
    records, broken = find_records(folder)
    if not records and broken:
        raise UserError(f"all {len(broken)} records below {folder} are broken; {broken[0]}")
    if not records:
        raise UserError(
            f"no {FILE_NAME} below {folder}: expected a folder of finished runs as --output_dir"
        )
    return records, broken


def find_records(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """All records below a folder, and what is wrong with those that are broken; as `find_runs`."""
    runs, broken = find_runs(folder)
    return [record for _, record in runs], broken


def find_runs(folder: Path) -> tuple[list[tuple[Path, dict[str, Any]]], list[str]]:
    """All finished runs below a folder, at any depth.

    Returns:
        The folders and records of those that are whole, and a sentence for each that is not, or is
        of a run (settings and seed) that another record is of.
    """
    # Not `folder.is_dir()`, which raises for a name that is too long.
    paths = sorted(folder.rglob(FILE_NAME)) if os.path.isdir(folder) else []
    found: dict[tuple[str, int], tuple[Path, dict[str, Any]]] = {}
    broken = []
    for path in paths:
        try:
            record = read_record(path)
        except UserError as error:
            broken.append(str(error))
            continue
        run = (record["settings_hash"], record["seed"])
        if run in found:
            broken.append(f"{path} is the same run as another record: delete one of them")
        found.setdefault(run, (path.parent, record))
    return list(found.values()), broken


def fits(record: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether a record is of the `dataset`, `method` and `seeds` given; None stands for all."""
    return (
        given["dataset"] in (None, record["dataset"])
        and given["method"] in (None, record["method"])
        and (given["seeds"] is None or record["seed"] in given["seeds"])
    )


def results_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each settings, mean ± population std over its seeds.

    Accuracy is in percent, forgetting a fraction; "-" where it is undefined. Rows that would begin
    alike have with the method what sets them apart.
    """
    alike: dict[tuple[str, ...], list[Sequence[Mapping[str, Any]]]] = {}
    for group in by_settings(records):
        alike.setdefault(_begins(group[0]), []).append(group)
    rows = [
        (*begins[:3], ", ".join(filter(None, (begins[3], particular))), *begins[4:], *_ends(group))
        for begins, groups in alike.items()
        for group, particular in zip(
            groups, differences([group[0]["settings"] for group in groups]), strict=True
        )
    ]
    return Table("results", "Results", _COLUMNS, tuple(rows), _NUMBERS)


def results_text(records: Sequence[Mapping[str, Any]]) -> str:
    """The rows of `results_table` for a terminal, at most 80 columns wide, ending in a newline."""
    lines = []
    above = None
    for dataset, head, tasks, *cells in results_table(records).rows:
        if above != (dataset, head, tasks):
            above = (dataset, head, tasks)
            lines += ["", f"{dataset} ({head}-head), tasks: {tasks} ({_TASKS})"]
            lines.append(_line(("method", "rate", "memory", "n", "acc. %", "forgetting", "hash")))
        lines.append(_line([*cells[:-1], cells[-1].strip("`")]))
    return "\n".join([*lines[1:], ""])


def _line(cells: Sequence[str]) -> str:
    name, *numbers = cells
    widths = (7, 8, 4, 12, 16, 10)
    if len(name) > 20:  # on a line of its own, so that 80 columns hold
        name = f"{textwrap.fill(name, 80)}\n{'':<21}"
    return f"{name:<21}" + "".join(f"{c:>{w}}" for c, w in zip(numbers, widths, strict=True))


def by_settings(
    records: Sequence[Mapping[str, Any]], *, tuning: bool = False
) -> list[list[Mapping[str, Any]]]:
    """The records of the evaluated tasks, those of the same settings together, by seed.

    Args:
        records: Of finished runs.
        tuning: Whether runs on what is held out for tuning are kept too.

    Returns:
        A list for each settings, in the order of the catalog and of the registry.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in sorted(records, key=lambda record: record["seed"]):
        if tuning or record["settings"].get("tasks") is None:
            groups.setdefault(record["settings_hash"], []).append(record)
    return sorted(groups.values(), key=_order)


def titles(groups: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """A name for each group of `by_settings` that no other of them has.

    The method, with the precision where it is not single, and the beginning of the settings' hash
    where several share these. A method that the registry does not know has the name in its records.
    """
    names = [_title(group[0]) for group in groups]
    return [
        f"{name} {group[0]['settings_hash'][:8]}" if names.count(name) > 1 else name
        for name, group in zip(names, groups, strict=True)
    ]


def _order(group: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    first = group[0]
    return (
        _place(first["dataset"], DATASETS),
        first["head"],
        _place(first["method"], METHODS),
        first["settings"]["learning_rate"],
        first["settings_hash"],
    )


def _place(name: str, known: Mapping[str, Any]) -> tuple[int, str]:
    return (list(known).index(name) if name in known else len(known), name)


def _title(record: Mapping[str, Any]) -> str:
    """The method, with the precision where it is not single."""
    method = METHODS.get(record["method"])
    title = method.title if method else record["method"]
    precision = record["settings"].get("precision", "float32")
    return title if precision == "float32" else f"{title}, {precision}"


def _begins(first: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        first["dataset"],
        first["head"],
        f"{first['num_tasks']} / {first['tuning_tasks']} / {first['evaluated_tasks']}",
        _title(first),
        f"{first['settings']['learning_rate']:g}",
        or_dash(first["settings"].get("memory_capacity")),
    )


def _ends(group: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return (
        str(len(group)),
        mean_std(group, "average_accuracy", 100, 1),
        mean_std(group, "forgetting", 1, 3),
        f"`{group[0]['settings_hash'][:8]}`",
    )
