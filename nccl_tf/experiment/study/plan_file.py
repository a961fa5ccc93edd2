"""Reading a plan: a TOML file, checked down to every point of every grid."""

import math
import re
import reprlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.flag_table import MEMORY_SIZES, hyperparameter_names
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.config.settings import SETTINGS
from nccl_tf.experiment.launch.sweep import grid_points
from nccl_tf.experiment.study.plan import Cell, Plan, StudySetting, System
from nccl_tf.regular_files import read_regular
from nccl_tf.streams.catalog import DATASETS

_MAX_BYTES = 2**20
_NAME = re.compile(r"[a-z0-9_]{1,60}")
Columns = Mapping[str, tuple[Callable[[Any], Any], str]]


def read_plan(path: Path) -> Plan:
    """Read and check a plan.

    Raises:
        UserError: The file cannot be read, has another form, or asks for what cannot run.
    """
    try:
        content = tomllib.loads(read_regular(path, _MAX_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read --plan={path} ({error}): name a TOML file") from error
    plan = Plan(folder=path.parent, **_table(content, Plan, _PLAN, "the plan"))
    settings = [row.name for row in plan.settings]
    names = [row.name for row in plan.systems]
    for key, named in (("compared_with", plan.compared_with), ("winner", [plan.winner])):
        for name in named:
            if name and name not in names:
                raise UserError(
                    f"the plan's {key} names {name}: expected a system, {', '.join(names)}"
                )
    families = sorted({row.family for row in DATASETS.values()})
    for system in plan.systems:
        for name in (*system.seeds, *system.tuning_seeds, *system.left_out, *system.grids):
            if name not in settings and not (name in system.grids and name in families):
                raise UserError(
                    f"the plan's system {system.name} names {name}: expected a setting, "
                    f"{', '.join(settings)}; a grid may also be of {', '.join(families)}"
                )
    for cell in plan.cells():
        _check(cell)
    return plan


def _check(cell: Cell) -> None:
    """Check that every point of the grid, and every run, can be made."""
    where = f"{cell.system.name} in {cell.setting.name}"
    try:
        if cell.refusal():
            return
        resolve(cell.flag_values())
        points = math.prod(len(sweep.values) for sweep in cell.sweeps())
        if not 1 <= points <= cell.plan.most_trials:
            raise UserError(
                f"its grid has {points} points: expected 1 to {cell.plan.most_trials} (most_trials)"
            )
        grid_points(cell.trial_flags(), resolve_options({"seeds": cell.tuning_seeds}))
    except UserError as error:
        raise UserError(f"the plan's {where}: {error}") from error


def _table(content: Any, kind: type, columns: Columns, where: str) -> dict[str, Any]:
    """The values of a table by name, each read by its column's reader.

    Args:
        content: What TOML has.
        kind: What is made of it; the fields without a default are required.
        columns: Reader, and what it expects, by name.
        where: What it is, for the message.

    Raises:
        UserError: A name is unknown or missing, or a value of another kind.
    """
    content = content if isinstance(content, dict) else {str(content): None}
    unknown = [name for name in content if name not in columns]
    missing = [
        row.name
        for row in fields(kind)
        if row.name in columns and row.name not in content
        and row.default is MISSING and row.default_factory is MISSING
    ]  # fmt: skip
    if unknown or missing:
        fault = f"has {reprlib.repr(unknown[0])}" if unknown else f"lacks {missing[0]}"
        raise UserError(f"{where} {fault}: expected a table of {', '.join(columns)}")
    result = {}
    for name, value in content.items():
        read, expected = columns[name]
        try:
            result[name] = read(value)
        except UserError:
            raise
        except (TypeError, ValueError) as error:
            received = reprlib.repr(value)
            raise UserError(f"{where} has {name} = {received}: expected {expected}") from error
    return result


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError
    return value.strip()


def _name(value: Any) -> str:
    if not _NAME.fullmatch(_text(value)):
        raise ValueError
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise TypeError
    return value


def _flags(value: Any) -> dict[str, Any]:
    # How and where runs are made is the command's to say: no plan reads a file or runs code.
    if not set(_tables(value)) <= {*SETTINGS, *MEMORY_SIZES, *hyperparameter_names()} - {"tasks"}:
        raise ValueError
    parts = [part for one in value.values() for part in (one if isinstance(one, list) else [one])]
    if not all(isinstance(part, str | int | float) for part in parts):
        raise TypeError
    return value


def _seeds(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or len(set(value)) < len(value):
        raise TypeError
    if any(type(seed) is not int or seed < 0 for seed in value):
        raise TypeError
    return tuple(value)


def _grid(value: Any) -> dict[str, tuple[Any, ...]]:
    if not _flags(value) or any(not isinstance(one, list) for one in value.values()):
        raise TypeError
    return {name: tuple(values) for name, values in value.items()}


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_name, value))


def _by_setting(read: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda value: {name: read(one) for name, one in _tables(value).items()}


def _tables(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _rows(kind: type, columns: Columns) -> Callable[[Any], tuple[Any, ...]]:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise TypeError
        rows = [_table(row, kind, columns, f"a {kind.__name__} of the plan") for row in value]
        if len({row["name"] for row in rows}) < len(rows):
            raise ValueError
        return tuple(kind(**row) for row in rows)

    return read


_FLAGS = (_flags, "a table of flags that set what is run")
_WORDS = (_text, "text")
_NUMBERS = (_seeds, "different whole numbers of at least 0")
_SETTING: Columns = {
    "name": (_name, "small letters, digits and _"),
    "title": _WORDS,
    "flags": _FLAGS,
    "tuning_flags": _FLAGS,
    "seeds": _NUMBERS,
    "tuning_seeds": _NUMBERS,
}
_SYSTEM: Columns = {
    "name": (_name, "small letters, digits and _"),
    "title": _WORDS,
    "flags": _FLAGS,
    "grids": (_by_setting(_grid), "a table of grids, by the name of a setting or family"),
    "seeds": (_by_setting(_seeds), "a table of lists of seeds, by the name of a setting"),
    "tuning_seeds": (_by_setting(_seeds), "a table of lists of seeds, by the name of a setting"),
    "left_out": (_by_setting(_text), "a table of reasons, by the name of a setting"),
}
_PLAN: Columns = {
    "title": _WORDS,
    "text": _WORDS,
    "most_trials": (_count, "a whole number of at least 1"),
    "flags": _FLAGS,
    "settings": (_rows(StudySetting, _SETTING), "tables [[settings]] of different names"),
    "compared_with": (_names, "a list of names of systems"),
    "winner": (_name, "the name of a system"),
    "systems": (_rows(System, _SYSTEM), "tables [[systems]] of different names"),
}
