"""A table of the paper beside our records: a verdict for each of its cells."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nccl_tf.commands.paper.published import Published, published, tables
from nccl_tf.commands.paper.rivals import CONTENTS as RIVAL_TABLES
from nccl_tf.commands.paper.rivals import rivals
from nccl_tf.errors import UserError, checked_name
from nccl_tf.records.record import Record
from nccl_tf.records.spread import spread

AGREES, DIFFERS, TOO_FEW_SEEDS, MISSING = "agrees", "differs", "too few seeds", "missing"
NO_VERDICT = "no verdict"
"""Of training times: the paper's are of another program on another card."""
MIN_SEEDS = 3
TIME, TIME_RATIO = "train_time_s", "train_time_ratio"
REFERENCE = "er_ring"
"""The method whose training time the others' are divided by."""

# The unit of a metric, and one point of it: a hundredth of what it can be at most.
POINTS = {"accuracy": 1.0, "forgetting": 0.01}
_OURS = {"accuracy": ("average_accuracy", 100.0), "forgetting": ("forgetting", 1.0)}


@dataclass(frozen=True)
class Comparison:
    """A published cell and our records of it.

    Args:
        cell: The published cell.
        metric: "accuracy" (percent), "forgetting" (fraction) or "train_time_ratio" (training time
            over that of ER-Ring on the same data).
        published: The paper's mean, in that unit.
        published_std: Its standard deviation; None where none is printed.
        values: Ours, one for each seed, in that unit.
        states: The digests of the trained states that they are of, where records have them.
    """

    cell: Published
    metric: str
    published: float
    published_std: float | None
    values: tuple[float, ...]
    states: tuple[str | None, ...] = ()

    @property
    def seeds(self) -> int:
        """Number of our runs."""
        return len(self.values)

    @property
    def ours(self) -> float | None:
        """Mean over our runs; None without any."""
        return spread(self.values).mean if self.values else None

    @property
    def ours_std(self) -> float | None:
        """Their population standard deviation; None below two runs."""
        return spread(self.values).std if self.seeds > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.ours is None else self.ours - self.published

    @property
    def verdict(self) -> str:
        """Agrees, differs, too few seeds or missing; given for doubtful cells too.

        A training time has none of the first two, see `NO_VERDICT`.
        """
        if self.difference is None:
            return MISSING
        if self.seeds < MIN_SEEDS:
            return TOO_FEW_SEEDS
        if self.metric == TIME_RATIO:
            return NO_VERDICT
        allowed = tolerance(self.published_std, self.ours_std or 0.0, self.seeds, self.cell.seeds)
        return AGREES if abs(self.difference) <= max(allowed, POINTS[self.metric]) else DIFFERS

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "dataset": self.cell.dataset,
            "memory_size": self.cell.memory_size,
            "method": self.cell.label,
            "metric": self.metric,
            "published": self.published,
            "published_std": self.published_std,
            "ours": self.ours,
            "ours_std": self.ours_std,
            "seeds": self.seeds,
            "difference": self.difference,
            "verdict": self.verdict,
            "doubt": self.cell.doubt or None,
        }


def tolerance(
    published_std: float | None, ours_std: float, seeds: int, published_seeds: int = 5
) -> float:
    """Two standard errors of a difference of means: 2 sqrt(s_p^2 / (m - 1) + s_o^2 / (n - 1)).

    Args:
        published_std: s_p, population standard deviation over the paper's runs, as its code base
            prints it; None counts as 0.
        ours_std: s_o, population standard deviation (ddof=0) over our runs.
        seeds: n, at least 2.
        published_seeds: m, the paper's runs, at least 2.
    """
    published = (published_std or 0.0) ** 2 / (published_seeds - 1)
    return 2 * math.sqrt(published + ours_std**2 / (seeds - 1))


def select_cells(
    table: str | None, dataset: str | None = None, method: str | None = None
) -> list[Published]:
    """The published cells of a table, a data set and a method, or of all, later papers' last.

    Raises:
        UserError: No such table, or it has no such cell.
    """
    if table is not None:
        checked_name("table", table, (*tables(), *RIVAL_TABLES))
    cells = [
        cell
        for cell in (*published(), *rivals())
        if table in (None, cell.table)
        and dataset in (None, cell.dataset)
        and method in (None, cell.method)
    ]
    if not cells:
        raise UserError(
            f"{table or 'the paper'} has no number of {method or 'any method'} on "
            f"{dataset or 'any data set'}: leave out --method or --dataset"
        )
    return cells


def compare(cells: Iterable[Published], records: Sequence[Record]) -> list[Comparison]:
    """Each cell with the records whose settings are those of its flagfile.

    Tables that repeat a run, and the memory sizes of a method without memory, share its records.
    Of a run that was made again, as to time it, the first record alone counts, and any of them may
    give a training time.
    """
    runs: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        runs.setdefault(record.settings_hash, []).append(record)
    references = {
        cell.column: cell for cell in published() if (cell.metric, cell.method) == (TIME, REFERENCE)
    }
    result = []
    for cell in cells:
        ours = runs.get(cell.settings().digest(), [])
        if cell.metric == TIME:
            reference = references[cell.column]
            theirs = runs.get(reference.settings().digest(), [])
            ratios, ratio = time_ratios(ours, theirs), cell.mean / reference.mean
            result.append(Comparison(cell, TIME_RATIO, ratio, None, ratios))
            continue
        name, scale = _OURS[cell.metric]
        of_seeds = {record.seed: record for record in reversed(ours)}
        known = [r for _, r in sorted(of_seeds.items()) if getattr(r, name) is not None]
        values = tuple(scale * getattr(record, name) for record in known)
        states = tuple(record.state_sha256 for record in known)
        result.append(Comparison(cell, cell.metric, cell.mean, cell.std, values, states))
    return result


def time_ratios(records: Iterable[Record], references: Iterable[Record]) -> tuple[float, ...]:
    """Training time over the reference's, for each seed that both have timed in the same way."""
    ours, theirs = _seconds(records), _seconds(references)
    return tuple(seconds / theirs[timing] for timing, seconds in ours.items() if timing in theirs)


def _seconds(records: Iterable[Record]) -> dict[tuple[Any, ...], float]:
    """Training times, grouped by all that must be equal to compare them.

    Left out are runs with diagnostics, whose cost differs between methods, and runs of a modified
    package, whose commit does not name their code.
    """
    return {
        (
            record.seed, record.commit, tuple(record.versions.values()), *record.timing,
        ): record.train_seconds
        for record in records
        if record.options.get("diagnostics", "off") == "off"
        and not record.package_modified
    }  # fmt: skip


def counts(comparisons: Iterable[Comparison]) -> dict[str, int]:
    """How many cells have each verdict, in a fixed order."""
    verdicts = [comparison.verdict for comparison in comparisons]
    names = (AGREES, DIFFERS, NO_VERDICT, TOO_FEW_SEEDS, MISSING)
    return {name: verdicts.count(name) for name in names}
