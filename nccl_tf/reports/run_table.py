"""A row for each run, numbers as numbers: as CSV, as Parquet and as a DataFrame of pandas."""

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError, one_line
from nccl_tf.records.record import Record
from nccl_tf.records.settings import SETTINGS, flattened
from nccl_tf.records.spread import Spread, spread
from nccl_tf.reports.records import Records, by_settings, method_title

Columns = Mapping[str, Sequence[Any]]
"""Values of the runs by the names of the columns: int, float, bool, str, or None where a run has
none; of one type in each column."""

_FIRST = ("method", "dataset", "head", "tasks", "seed", "settings_hash")
_NUMBERS = (
    "average_accuracy", "forgetting", "learning_accuracy", "backward_transfer", "forward_transfer",
    "averaged_average_accuracy", "averaged_forgetting", "num_tasks", "tuning_tasks",
    "evaluated_tasks", "parameters", "steps", "skipped_steps", "train_seconds", "compile_seconds",
    "eval_seconds", "peak_memory_bytes", "bytes_stored",
    "examples_passed",
)  # fmt: skip
_METRICS = _NUMBERS[:7]
"""Those of learning, which means are taken of."""
_STREAM = ("method", "dataset", "head", "num_tasks", "tuning_tasks", "evaluated_tasks")
_LAST = (
    "commit", "package_modified", "commit_in_history", "costs_from_settings", "device",
    "tensorfloat32", "xla", "steps_per_program", "state_sha256",
)  # fmt: skip


def run_columns(records: Sequence[Record]) -> dict[str, list[Any]]:
    """A row for each record: its numbers, every setting that a run has, and where it was made.

    Args:
        records: Of finished runs; "tasks" says whether on the evaluated tasks or those for tuning.
    """
    rows = [_row(record) for record in records]
    others = sorted({name for row in rows for name in row} - {*_FIRST, *_NUMBERS, *_LAST})
    versions = [name for name in others if name.endswith("_version")]
    settings = [name for name in SETTINGS if name in others]
    hyperparameters = [name for name in others if name not in {*settings, *versions}]
    names = (*_FIRST, *_NUMBERS, *settings, *hyperparameters, *_LAST, *versions)
    columns = {name: _of_one_type([row.get(name) for row in rows]) for name in names}
    return {
        name: values
        for name, values in columns.items()
        if name in _FIRST or any(value is not None for value in values)
    }


def mean_columns(records: Sequence[Record]) -> dict[str, list[Any]]:
    """A row for each settings: its seeds, and mean and deviation of its numbers over them.

    Accuracies, forgetting and transfers are fractions; "_std" is that of `spread`, None of one
    seed. Trials of sweeps are left out.

    Args:
        records: Of finished runs.
    """
    rows = []
    for group in by_settings(records):
        first = group[0]
        row = {name: getattr(first, name) for name in _STREAM}
        row |= {
            "title": method_title(first),
            "learning_rate": first.settings.learning_rate,
            "memory_capacity": first.settings.memory_capacity,
            "settings_hash": first.settings_hash,
            "seeds": len(group),
        }
        for name in _METRICS:
            values: list[Any] = [getattr(record, name) for record in group]
            known = None not in values
            mean, std, size = spread(values) if known else Spread(None, None, 0)
            row |= {f"{name}_mean": mean, f"{name}_std": std if size > 1 else None}
        rows.append(row)
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    return {
        name: values
        for name, values in columns.items()
        if any(value is not None for value in values)
    }


def read_results(folder: str | Path) -> Any:
    """The finished runs below a folder as a `pandas.DataFrame`, a row for each.

    Read are folders of runs and files of published records, at any depth. Accuracies, forgetting
    and transfers are fractions, times seconds, memory bytes; a column for each setting that a run
    has, which is missing (nan, NA) where another run has none. "tasks" is "evaluated", or "tuning"
    for the trials of a sweep on what is held out.

    Args:
        folder: Such as the --output_dir of the command.

    Raises:
        UserError: pandas is not installed, or the folder holds no record that is whole. Of others
            that are broken a warning tells.

    Example:

    ```python
    runs = nccl_tf.read_results("results/split_mnist-multi")
    runs = runs[runs.tasks == "evaluated"]
    accuracy = runs.groupby(["method", "settings_hash"]).average_accuracy
    print(accuracy.agg(mean="mean", std=lambda values: values.std(ddof=0), runs="count"))
    ```
    """
    try:
        import pandas
    except ImportError as error:
        raise UserError(
            "read_results() needs pandas, which is not installed: pip install pandas"
        ) from error
    found = Records.required(Path(folder))
    broken = found.broken
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        warnings.warn(f"left out: {one_line(broken[0])}{more}", stacklevel=2)
    columns = run_columns(found.records)
    return pandas.DataFrame({name: _series(values, pandas) for name, values in columns.items()})


def as_csv(columns: Columns) -> str:
    """The table as CSV, with its column names; None is left empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(_csv_cell, columns))
    writer.writerows(map(_csv_cell, row) for row in zip(*columns.values(), strict=True))
    return file.getvalue()


def as_parquet(columns: Columns) -> bytes:
    """The table as a file of Apache Parquet.

    Raises:
        UserError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(
            "--format=parquet needs pyarrow, which is not installed: pip install pyarrow, "
            "or take --format=csv"
        ) from error
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), file)
    return file.getvalue()


def _row(record: Record) -> dict[str, Any]:
    settings = {name: _as_cell(value) for name, value in flattened(record.settings_json).items()}
    versions = {f"{name.replace('-', '_')}_version": text for name, text in record.versions.items()}
    numbers = {
        name: getattr(record, name) for name in (*_FIRST, *_NUMBERS, *_LAST) if name != "tasks"
    }
    filled = {"tasks": record.settings.tasks or "evaluated", "xla": bool(record.xla)}
    return {**settings, **numbers, **versions, **filled}


def _as_cell(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _of_one_type(values: list[Any]) -> list[Any]:
    """The values, integers as floats beside floats, and all as text beside text."""
    types = {type(value) for value in values if value is not None}
    if len(types) < 2:
        return values
    kind = float if types == {int, float} else str
    return [None if value is None else kind(value) for value in values]


def _series(values: Sequence[Any], pandas: Any) -> Any:
    """A column of pandas, with a dtype that knows missing integers and truth values."""
    types = {type(value) for value in values if value is not None}
    dtype = {int: "Int64", bool: "boolean", float: "float64"}.get(*types) if types else None
    if dtype != "float64" and None not in values:
        dtype = {"Int64": "int64", "boolean": "bool"}.get(str(dtype))
    return pandas.Series(values, dtype=dtype)


def _csv_cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}" if value.lstrip().startswith(("=", "+", "-", "@")) else value
    return "" if value is None else repr(value)
