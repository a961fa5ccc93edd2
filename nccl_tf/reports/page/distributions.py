"""How Lambda and the step sizes are distributed in each part of a training, from steps.csv."""

import functools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.reports.figures.steps import read_steps

_QUANTITIES = ("lambda", "alpha_h", "beta_h")
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_PARTS = 40
_MOST_STEPS = 2**53


def distributions(folders: Sequence[Path | None]) -> dict[str, Any] | None:
    """Quantiles of the window means of several seeds in each part of their training.

    Args:
        folders: Of the runs; None for a published record, which has no steps.csv.

    Returns:
        "step" has the last step of each part, and each quantity of the runs its quantiles 5, 25,
        50, 75 and 95 %, a list over the parts each, null where nothing was measured; None where no
        run has such a quantity.

    Raises:
        UserError: A steps.csv is there and cannot be read.
    """
    paths = [folder / "steps.csv" for folder in folders if folder is not None]
    tables = [_columns(path, os.stat(path).st_mtime_ns) for path in paths if path.is_file()]
    tables = [table for table in tables if "step" in table]
    last = max((float(step) for table in tables for step in table["step"]), default=0.0)
    if not 0 < last < _MOST_STEPS:
        return None
    parts = min(_PARTS, max(len(table["step"]) for table in tables))
    result: dict[str, Any] = {"step": as_json(np.ceil(last * np.arange(1, parts + 1) / parts), 9)}
    for name in _QUANTITIES:
        measured = [table for table in tables if name in table]
        if any(np.isfinite(table[name]).any() for table in measured):
            result[name] = as_json(_quantiles(measured, name, last, parts), 3)
    return result if len(result) > 1 else None


def as_json(values: Any, digits: int = 4) -> Any:
    """Numbers with so many significant digits, null where they are not finite.

    Args:
        values: An array of any shape, or a list of such lists.
        digits: The number.
    """
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [as_json(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if math.isfinite(values) else None


@functools.lru_cache(maxsize=4096)
def _columns(path: Path, changed: int) -> dict[str, np.ndarray]:
    """Steps and window means; read again when the file has changed."""
    del changed
    kept = {"step": "step", **{f"{name}_mean": name for name in _QUANTITIES}}
    return {kept[name]: values for name, values in read_steps(path, kept).items()}


def _quantiles(
    tables: Sequence[dict[str, np.ndarray]], name: str, last: float, parts: int
) -> np.ndarray:
    """[quantiles, parts], nan where no window of a part has measured the quantity."""
    steps = np.concatenate([table["step"] for table in tables])
    values = np.concatenate([table[name] for table in tables])
    finite = np.isfinite(values) & (steps > 0)
    part = np.clip(np.ceil(steps[finite] * parts / last) - 1, 0, parts - 1).astype(int)
    nothing = np.full(len(_QUANTILES), np.nan)
    each = [values[finite][part == i] for i in range(parts)]
    with np.errstate(over="ignore", invalid="ignore"):  # Between values near the largest float.
        return np.array([np.quantile(v, _QUANTILES) if len(v) else nothing for v in each]).T
