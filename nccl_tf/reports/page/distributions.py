"""How Lambda and the step sizes are distributed in each part of a training, from steps.csv."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nccl_tf.reports.figures.steps import read_steps

_QUANTITIES = ("lambda", "alpha_h", "beta_h")
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_PARTS = 40
_MOST_STEPS = 2**53


class Distributions(NamedTuple):
    """Quantiles of the window means of several seeds in each part of their training.

    Attributes:
        step: The last step of each part, float64 [parts].
        quantiles: By the name of each quantity that was measured its quantiles 5, 25, 50, 75 and
            95 %, float64 [5, parts], nan in a part that measured nothing.
    """

    step: np.ndarray
    quantiles: dict[str, np.ndarray]


def distributions(folders: Sequence[Path | None]) -> Distributions | None:
    """The distributions of Lambda, alpha_H and beta_H over the training of some runs.

    Args:
        folders: Of the runs; None for a published record, which has no steps.csv.

    Returns:
        None where no run measured such a quantity.

    Raises:
        UserError: A steps.csv is there and cannot be read.
    """
    kept = {"step": "step", **{f"{name}_mean": name for name in _QUANTITIES}}
    paths = [folder / "steps.csv" for folder in folders if folder is not None]
    read = [read_steps(path, kept) for path in paths if path.is_file()]
    tables = [{kept[name]: v for name, v in columns.items()} for columns in read]
    tables = [table for table in tables if "step" in table]
    last = max((float(step) for table in tables for step in table["step"]), default=0.0)
    if not 0 < last < _MOST_STEPS:
        return None
    parts = min(_PARTS, max(len(table["step"]) for table in tables))
    quantiles = {}
    for name in _QUANTITIES:
        measured = [table for table in tables if name in table]
        if any(np.isfinite(table[name]).any() for table in measured):
            quantiles[name] = _quantiles(measured, name, last, parts)
    step = np.ceil(last * np.arange(1, parts + 1) / parts)
    return Distributions(step, quantiles) if quantiles else None


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
