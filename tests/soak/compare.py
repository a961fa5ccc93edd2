"""Whether a disturbed run ended as one that nobody disturbed, with a row for each of its steps."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

UNTIMED = (
    "train_seconds", "compile_seconds", "eval_seconds", "peak_memory_bytes", "options", "commit",
)  # fmt: skip
"""What is not of the run itself."""

Rows = Sequence[Mapping[str, str]]


def differences(whole: Path, disturbed: Path, every: int | None) -> list[str]:
    """What differs between two folders of finished runs, a clause each.

    Args:
        whole: Of the undisturbed run, with a row for each step.
        disturbed: Of the other.
        every: The steps in a row of that; None where it was changed on the way.
    """
    one, two = (json.loads((folder / "result.json").read_text()) for folder in (whole, disturbed))
    for record in (one, two):
        record.get("diagnostics", {}).pop("seconds", None)
    names = sorted((one.keys() | two.keys()) - set(UNTIMED))
    found = [f"{name} differs" for name in names if one.get(name) != two.get(name)]
    one_row, rows = (_read(folder / "steps.csv") for folder in (whole, disturbed))
    return found + row_problems(one_row, rows, every)


def row_problems(steps: Rows, rows: Rows, every: int | None) -> list[str]:
    """What is wrong with rows of windows of steps, a clause each.

    Args:
        steps: A row for each step, as `StepRecord` writes them.
        rows: Rows of windows of other lengths, as texts by column.
        every: Their length; None for any.
    """
    begin, found = 0, []
    for row in rows:
        end = int(row["step"])
        if not begin < end <= len(steps):
            return [*found, f"a row of step {end} comes after one of {begin}"]
        if every and end != min(begin + every, len(steps)):
            found.append(f"a row has steps {begin + 1} to {end}, {every} were expected")
        expected = _window(steps[begin:end])
        found += [
            f"{name} of steps {begin + 1} to {end} is {row.get(name)!r}, not {value!r}"
            for name, value in expected.items()
            # Of 0 and -0, none is the least.
            if row.get(name) != value and {row.get(name), value} != {"0", "-0"}
        ]
        begin = end
    return found if begin == len(steps) else [*found, f"steps after {begin} have no row"]


def _window(steps: Rows) -> dict[str, str]:
    """The row of some steps: sums in their order, in float32, as the graph makes them."""
    row = {}
    for name in steps[-1]:
        column, _, part = name.rpartition("_")
        if name == "step" or name.startswith("cumulative_"):
            row[name] = steps[-1][name]
            continue
        values = [np.float32(step[f"{column}_mean"]) for step in steps if step[name]]
        if part == "mean":
            total = np.float32(0)
            for value in values:
                total += value
            values = [total / np.float32(len(values))] if values else []
        pick = {"mean": max, "min": min, "max": max}[part]
        row[name] = f"{float(pick(values)):.9g}" if values else ""
    return row


def _read(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
