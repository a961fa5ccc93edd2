"""The Markdown table of all records below a folder, and its place in a README."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.experiment.records import FILE_NAME, read_record
from nccl_tf.methods.registry import METHODS
from nccl_tf.reports.markdown import put_text, read_text, table
from nccl_tf.reports.text import mean_std
from nccl_tf.streams.catalog import DATASETS

BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"

_NUMBERS = ("learning rate", "memory", "seeds", "accuracy %", "forgetting")
_COLUMNS = (
    "data set", "head", "tasks: total / tuning / evaluated", "method", *_NUMBERS, "settings",
)  # fmt: skip


def read_records(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """All records below a folder, at any depth, and what is wrong with those that are broken.

    Returns:
        The records that are whole, and a sentence for each that is not, or is of a run (settings
        and seed) that another record is of.

    Raises:
        UserError: The folder is missing or holds no record that is whole.
    """
    # Not `folder.is_dir()`, which raises for a name that is too long.
    paths = sorted(folder.rglob(FILE_NAME)) if os.path.isdir(folder) else []
    if not paths:
        raise UserError(
            f"no {FILE_NAME} below {folder}: expected a folder of finished runs as --output_dir"
        )
    found: dict[tuple[str, int], dict[str, Any]] = {}
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
        found.setdefault(run, record)
    records = list(found.values())
    if not records:
        raise UserError(f"all {len(broken)} records below {folder} are broken; {broken[0]}")
    return records, broken


def results_table(records: Sequence[Mapping[str, Any]]) -> str:
    """A row for each settings, mean ± population std over its seeds, ending in a newline.

    Rows are in the order of the catalog and of the registry. Accuracy is in percent, forgetting a
    fraction; "-" where it is undefined.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        key = (record["dataset"], record["head"], record["settings_hash"])
        groups.setdefault(key, []).append(record)
    rows = [_row(group) for group in sorted(groups.values(), key=_order)]
    return table(_COLUMNS, rows, _NUMBERS)


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


def _row(group: Sequence[Mapping[str, Any]]) -> list[str]:
    first = group[0]
    method = METHODS.get(first["method"])
    capacity = first["settings"].get("memory_capacity")
    return [
        first["dataset"],
        first["head"],
        f"{first['num_tasks']} / {first['tuning_tasks']} / {first['evaluated_tasks']}",
        method.title if method else first["method"],
        f"{first['settings']['learning_rate']:g}",
        "-" if capacity is None else str(capacity),
        str(len(group)),
        mean_std(group, "average_accuracy", 100, 1),
        mean_std(group, "forgetting", 1, 3),
        f"`{first['settings_hash'][:8]}`",
    ]


def update_readme(path: Path, table: str, *, check: bool) -> bool:
    """Put the table between the two marks of a README.

    Args:
        path: The README.
        table: What is to stand there.
        check: Change nothing.

    Returns:
        Whether the file holds this table already.

    Raises:
        UserError: The file cannot be read or written, or does not hold each mark once, in order.
    """
    text = read_text(path, "--readme")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UserError(
            f"--readme={path}: expected one line {BEGIN} and after it one line {END}; add them "
            "where the table belongs"
        )
    wanted = f"{before}{BEGIN}\n{table}{END}{after}"
    return put_text(path, text, wanted, flag="--readme", check=check)
