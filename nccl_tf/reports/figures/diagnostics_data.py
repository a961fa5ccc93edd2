"""Records with diagnostics, grouped by settings, and the series that pictures draw of them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_tf.errors import UserError
from nccl_tf.records.record import Record
from nccl_tf.reports.records import by_settings, titles

Array = npt.NDArray[np.float64]


class Group(NamedTuple):
    """The seeds of one settings.

    Attributes:
        method: Name of the method.
        title: Its name among the groups of a picture.
        records: One per seed, each with diagnostics.
    """

    method: str
    title: str
    records: list[Record]

    def series(self, *names: str) -> Array:
        """A measurement at the end of every task: [seeds, tasks], nan where there is none.

        Args:
            names: Path to it in a task's row, such as "first_task", "gradient_norm".
        """
        return np.array([[_at(row, names) for row in rows(record)] for record in self.records])

    def gamma(self, smoothness: float | None = None) -> Array:
        """The sum of Gamma up to the end of every task, [seeds, tasks], in its surrogate form.

        Args:
            smoothness: L; None for the L of the runs.
        """
        if smoothness is None:
            return self.series("gamma_surrogate")
        slope = self.series("gamma_surrogate_slope")
        return self.series("gamma_surrogate_at_0") + smoothness * slope

    def drawn(self, name: str, smoothness: float | None = None) -> Array:
        """Values of all draws and seeds at the task ends from the second on, [tasks, values].

        Args:
            name: "overfitting" or "gamma_surrogate".
            smoothness: L; None for the L of the runs.
        """

        def values(row: Mapping[str, Any]) -> Array:
            drawn = np.array(row["draws"][name])
            more = 0.0 if smoothness is None else smoothness - row["smoothness"]
            return drawn + more * np.array(row["draws"][f"{name}_slope"])

        ends = zip(*(rows(record)[1:] for record in self.records), strict=True)
        return np.array([np.concatenate([values(row) for row in end]) for end in ends])

    @property
    def seeds(self) -> list[int]:
        """Their seeds."""
        return [record.seed for record in self.records]

    @property
    def has_reservoir(self) -> bool:
        """Whether the memory is a uniform sample of the stream rather than a ring or none."""
        return "reservoir" in (self.records[0].settings.memory or "")


def group_records(records: Sequence[Record]) -> list[Group]:
    """The records with diagnostics, those for tuning too, by settings in the registry's order.

    Args:
        records: Of finished runs, on one data set.

    Raises:
        UserError: None has diagnostics, or they are of several data sets.
    """
    measured = [record for record in records if record.diagnostics]
    if not measured:
        raise UserError(
            "no record has diagnostics: run with --diagnostics=full (or subset) first, and give "
            "that --output_dir"
        )
    streams = sorted({f"{r.dataset} ({r.head}-head)" for r in measured})
    if len(streams) > 1:
        raise UserError(
            f"received records of {', '.join(streams)}: give --dataset, or one --output_dir for "
            "each"
        )
    lengths = {len(rows(record)) for record in measured}
    if len(lengths) > 1:
        raise UserError(
            f"received records of {', '.join(map(str, sorted(lengths)))} tasks: expected runs of "
            "one length below --output_dir"
        )
    grouped = by_settings(measured, tuning=True)
    return [
        Group(members[0].method, title, members)
        for title, members in zip(titles(grouped), grouped, strict=True)
    ]


def rows(record: Record) -> list[Mapping[str, Any]]:
    """Measurements of the diagnostics, a row per task end."""
    return record.diagnostics["tasks"]


def describe_settings(groups: Sequence[Group], smoothness: float | None = None) -> str:
    """Data set, head, tasks, seeds, L and extent of the diagnostics, for a caption.

    Args:
        groups: What is plotted.
        smoothness: L of Gamma and B; None for the L of the runs.
    """
    first = groups[0].records[0]
    seeds = sorted({len(group.seeds) for group in groups})
    levels = np.concatenate([group.series("smoothness").ravel() for group in groups])
    low, high = np.nanmin(levels), np.nanmax(levels)
    extents = {
        "full" if r.diagnostics["subset"] is None else f"{r.diagnostics['subset']} a task"
        for group in groups
        for r in group.records
    }
    return (
        f"{first.dataset} ({first.head}-head), {len(rows(first))} tasks; "
        f"{' or '.join(map(str, seeds))} seed{'s' if seeds != [1] else ''} of each method; "
        f"L = {low:g}{'' if low == high else f' to {high:g}'}"
        f"{'' if smoothness is None else f' in the runs, {smoothness:g} here'}; gradients over "
        f"{' and '.join('all examples' if e == 'full' else e for e in sorted(extents))}."
    )


def _at(row: Any, names: Sequence[str]) -> float:
    for name in names:
        row = None if row is None else row[name]
    return float("nan") if row is None else float(row)
