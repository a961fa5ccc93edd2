"""What the runs that published cells lack would take, from steps that benchmarks have measured."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nccl_tf.reports.paper.parity import MIN_SEEDS
from nccl_tf.reports.paper.published import Published

FILE_NAME = "hours.toml"
"""Core hours of a run by stream and settings, beside published records."""
COMMAND = "python -m benchmarks.missing_runs"
"""The command that writes it."""


class MissingRuns:
    """The runs that settings of published cells lack, and their core hours.

    A run of more than one core hour is one for a GPU.

    Args:
        records: All records.
        hours: Core hours of one run by the first eight digits of its settings' hash.
    """

    def __init__(
        self, records: Iterable[Mapping[str, Any]], hours: Mapping[str, float] | None = None
    ):
        self._runs = Counter(record["settings_hash"] for record in records)
        self._hours = hours or {}

    def lacked(self, cell: Published) -> int:
        """Runs that the cell's settings lack of `MIN_SEEDS`."""
        return max(MIN_SEEDS - self._runs[cell.settings().digest()], 0)

    def hours(self, cell: Published) -> float | None:
        """Core hours of one run of the cell; None where they are not measured."""
        return self._hours.get(cell.settings().digest()[:8])

    def note(self, cell: Published) -> str:
        """What follows the verdict of a cell that lacks runs; "" where nothing is known of them, or
        where no run has the number."""
        hours = self.hours(cell)
        if not self.lacked(cell) or hours is None or cell.doubt.startswith("undefined"):
            return ""
        gpu = "needs a GPU, " if hours > 1 else ""
        return f": {gpu}{hours_text(hours)} core hours a run"

    def totals(self, cells: Sequence[Published]) -> tuple[str, ...]:
        """Of the cells' settings: runs that lack, their core hours, and both of those for a GPU.

        Settings that several cells share count once; a sum with a part that is not measured is "-".
        """
        by_settings = {cell.settings().digest(): cell for cell in cells if self.lacked(cell)}
        lacking = list(by_settings.values())
        measured = [(cell, self.hours(cell)) for cell in lacking]
        long = [cell for cell, hours in measured if hours is not None and hours > 1]
        return (*self._sums(lacking), *self._sums(long))

    def _sums(self, cells: Sequence[Published]) -> tuple[str, str]:
        hours = [self.hours(cell) for cell in cells]
        runs = [self.lacked(cell) for cell in cells]
        if None in hours:
            return str(sum(runs)), "-"
        total = sum(run * hour for run, hour in zip(runs, hours, strict=True) if hour is not None)
        return str(sum(runs)), hours_text(total)


TOTALS = ("runs", "core hours", "for a GPU", "their core hours")
"""What `totals` gives."""


def hours_text(hours: float) -> str:
    """Hours with two digits that count: 0.23, 4.5, 31."""
    return f"{hours:.{0 if hours >= 10 else 1 if hours >= 1 else 2}f}"
