"""Tables in CSV files, every cell of which is read as what it is, or named in a message."""

import csv
import io
import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.regular_files import open_regular
from nccl_tf.streams.arrays import MISSING, are_booleans, in_one_form, largest_class

_MAX_BYTES = 2**32
_COMMAS = re.compile(r"[+-]?\d[\d.]*,[\d.,]*\d")
_SEPARATORS = ",;\t"


class CsvTable(NamedTuple):
    """The cells of a CSV file.

    Args:
        path: The file.
        columns: The cells of each column, by its name.
        rows: The number of each row in the file, from 1 for the header; blank rows count.
    """

    path: Path
    columns: dict[str, list[str]]
    rows: Sequence[int]


def read_table(path: Path) -> CsvTable:
    """Read a CSV file with a header; cells are separated by commas, semicolons or tabs.

    Raises:
        UserError: It cannot be read, has no rows, names a column twice or not at all, or a row has
            more or fewer cells than the header.
    """
    header: list[str] = []
    columns: list[list[str]] = []
    rows = array("q")
    usual = csv.field_size_limit(_MAX_BYTES)  # of the module, and 131,072 letters
    try:
        with open_regular(path, _MAX_BYTES) as file:
            text = io.TextIOWrapper(file, "utf-8-sig", newline="")
            first = text.readline()
            text.seek(0)
            separator = next((mark for mark in _SEPARATORS if mark in first), ",")
            # Each cell goes to its column, since a list of rows takes many times the cells.
            for number, row in enumerate(csv.reader(text, delimiter=separator), 1):
                if row and not header:
                    header, columns = row, [[] for _ in row]
                elif row:
                    _add(path, columns, row, number)
                    rows.append(number)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"cannot read {path} ({error}): expected a CSV file in UTF-8, its first line the names "
            "of the columns"
        ) from error
    finally:
        csv.field_size_limit(usual)
    if not rows or len(set(header)) != len(header):
        raise UserError(f"{path} has no header of different names with rows below it")
    if not all(name.strip() for name in header):
        raise UserError(
            f"{path} has a column without a name, as the row numbers that pandas writes: name it, "
            "or leave it out, frame.to_csv(path, index=False)"
        )
    return CsvTable(path, dict(zip(header, columns, strict=True)), rows)


def _add(path: Path, columns: list[list[str]], row: list[str], number: int) -> None:
    if len(row) != len(columns):
        raise UserError(f"row {number} of {path} has {len(row)} values, expected {len(columns)}")
    for column, cell in zip(columns, row, strict=True):
        column.append(cell)


def are_codes(tables: Sequence[CsvTable], name: str) -> bool:
    """Whether a column is of codes: different texts of it are the same whole number, as 007 and 7.

    Args:
        tables: The parts of a data set, which have the column.
        name: The column.
    """
    cells = {cell.strip() for table in tables for cell in table.columns[name]}
    whole = _whole(list(cells))
    return whole is not None and len(set(whole)) < len(cells)


def targets_of(table: CsvTable, name: str, codes: bool = False) -> np.ndarray:
    """The labels of a column: int64 class numbers, float64 numbers to predict, or names.

    Args:
        table: The table.
        name: The column.
        codes: Whether whole numbers are names, as `are_codes` tells.

    Raises:
        UserError: A cell is empty, is no finite number beside numbers, or a class number is too
            large.
    """
    cells = table.columns[name]
    _check_not_empty(table, name)
    if codes:
        return _names(cells)
    whole = _whole(cells)
    if whole is not None:
        most = largest_class(len(whole))
        wrong = next((row for row, label in enumerate(whole) if not 0 <= label <= most), None)
        if wrong is not None:
            raise _wrong_cell(
                table, name, wrong,
                f"expected class numbers from 0 to {most:,} at most, because a network has an "
                "output for each; renumber the classes, or write names",
            )  # fmt: skip
        return np.array(whole, np.int64)
    numbers = _numbers(table, name, may_be_names=True)
    return _texts(cells) if numbers is None else numbers


def domains_of(table: CsvTable, name: str, codes: bool = False) -> np.ndarray:
    """The domains of a column: int64, float64, datetime64[us] of ISO 8601, or names.

    Args:
        table: The table.
        name: The column.
        codes: As for `targets_of`.

    Raises:
        UserError: A cell is empty, or is no finite number beside numbers.
    """
    cells = table.columns[name]
    _check_not_empty(table, name)
    if codes:
        return _names(cells)
    whole = _whole(cells)
    if whole is not None:
        is_long = max(map(abs, whole)) >= 2**63
        return np.array(cells, object) if is_long else np.array(whole, np.int64)
    numbers = _numbers(table, name, may_be_names=True)
    if numbers is not None:
        return numbers
    try:
        return np.array(cells, "datetime64[us]")
    except ValueError:
        return _texts(cells)


def inputs_of(table: CsvTable, names: Sequence[str]) -> np.ndarray:
    """float32 [n, columns], True and False as 1 and 0; or one column of text, [n].

    Raises:
        UserError: A cell is empty or no finite number.
    """
    if len(names) == 1:
        _check_not_empty(table, names[0])
    columns = [_numbers(table, name) for name in names]
    text = next((name for name, column in zip(names, columns, strict=True) if column is None), None)
    if text is None:
        return np.stack([column for column in columns if column is not None], 1, dtype=np.float32)
    if len(names) > 1:
        raise _wrong_cell(
            table, text, 0,
            "text beside other columns; expected numbers, or a single column of text: encode it, "
            "or leave it out",
        )  # fmt: skip
    return np.array(table.columns[text], object)


def _names(cells: Sequence[str]) -> np.ndarray:
    return np.array([cell.strip() for cell in cells], object)


def _texts(cells: Sequence[str]) -> np.ndarray:
    forms = in_one_form(cells)
    return np.array([forms[cell] for cell in cells], object)


def _whole(cells: Sequence[str]) -> list[int] | None:
    """Whole numbers of any size; None where a cell is none."""
    try:
        return list(map(int, cells)) if not any("_" in cell for cell in cells) else None
    except ValueError:
        return None


def _numbers(table: CsvTable, name: str, may_be_names: bool = False) -> np.ndarray | None:
    """A column float64 [n]; None where it is text.

    Args:
        table: The table.
        name: The column.
        may_be_names: Whether whole numbers and text may stand side by side, as names of classes.

    Raises:
        UserError: Cells that are no finite numbers are missing, have commas, or are few.
    """
    cells = table.columns[name]
    read = _boolean if not may_be_names and are_booleans(cells) else _number
    numbers = np.array(list(map(read, cells)), np.float64)
    with np.errstate(over="ignore"):
        is_number = np.isfinite(numbers.astype(np.float32))
    wrong = np.flatnonzero(~is_number).tolist()
    if not wrong:
        return numbers
    problem = None
    if all(map(_is_missing, (cells[row] for row in wrong))):
        problem = f"{_and_others(wrong)}fill missing values, or leave these rows out"
    elif sum(bool(_COMMAS.fullmatch(cells[row])) for row in wrong) > len(wrong) / 2:
        problem = "expected a point before decimals and nothing between thousands, as in 1000.5"
        wrong = [row for row in wrong if _COMMAS.fullmatch(cells[row])]
    elif len(wrong) < len(cells) / 2 and not (may_be_names and not (numbers[is_number] % 1).any()):
        problem = "expected a finite number, as in most rows: correct it, or leave the row out"
    elif not np.isnan(numbers).any():  # numbers of very many digits are no text
        problem = "expected numbers in the range of float32: scale the column, or leave it out"
    if problem is not None:
        raise _wrong_cell(table, name, wrong[0], problem)
    return None


def _number(cell: str) -> float:
    """A number, NaN where it is none; Python's 1_000 is none."""
    try:
        return float(cell) if "_" not in cell else np.nan
    except ValueError:
        return np.nan


def _boolean(cell: str) -> float:
    """1 for True and 0 for False, NaN for a missing one."""
    return {"true": 1.0, "false": 0.0}.get(cell.strip().lower(), np.nan)


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _check_not_empty(table: CsvTable, name: str) -> None:
    """Check that no cell of a column is empty: it would be a class, a domain or a text.

    Raises:
        UserError: One is.
    """
    empty = [row for row, cell in enumerate(table.columns[name]) if not cell.strip()]
    if empty:
        what = f"{_and_others(empty)}fill it, or leave the row out"
        raise _wrong_cell(table, name, empty[0], what)


def _and_others(rows: Sequence[int]) -> str:
    return f"which is missing in {len(rows):,} rows: " if len(rows) > 1 else "which is missing: "


def _wrong_cell(table: CsvTable, name: str, row: int, what: str) -> UserError:
    """The error of a cell.

    Args:
        table: The table.
        name: The column.
        row: Its place in the column.
        what: What is wrong, or expected.
    """
    cell = table.columns[name][row]
    shown = repr(cell if len(cell) <= 40 else f"{cell[:40]}...")
    return UserError(
        f"row {table.rows[row]} of the column {name!r} of {table.path} has {shown}, {what}"
    )
