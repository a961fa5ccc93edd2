"""What the plan asks for: every run with its key, in the order of its worth."""

import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nccl_tf.methods.registry import METHODS

HERE = Path(__file__).parent
PLAN: Mapping[str, Any] = tomllib.loads((HERE / "plan.toml").read_text())
DATA: Mapping[str, Any] = {data["name"]: data for data in PLAN["data"]}
SYSTEMS: Mapping[str, Any] = {system["name"]: system for system in PLAN["systems"]}

Row = dict[str, Any]


class Cell(NamedTuple):
    """A number of the tables, but for its seeds.

    Attributes:
        data, system: Their names in the plan.
        passes: Over the examples of each task.
        share: Of the training examples that the memory holds; None without a memory.
    """

    data: str
    system: str
    passes: int
    share: float | None

    @property
    def tuned(self) -> "Cell":
        """The cell whose rate it takes."""
        share = None if self.share is None else PLAN["tuned_share"]
        return self._replace(share=share, passes=DATA[self.data].get("tuned_passes", self.passes))

    @property
    def rates(self) -> Sequence[float]:
        """The rates that are tried."""
        return SYSTEMS[self.system].get("rates", PLAN["rates"][self.data])

    @property
    def regresses(self) -> bool:
        """Whether less is better."""
        return DATA[self.data].get("regression", False)


class Job(NamedTuple):
    """A run.

    Attributes:
        cell: Of which cell.
        part: "tuning" or "evaluated".
        seed: Its seed.
        rate: The learning rate; None where tuning has yet to choose it.
    """

    cell: Cell
    part: str
    seed: int
    rate: float | None

    @property
    def name(self) -> str:
        """Of its file, without the ending."""
        share = "" if self.cell.share is None else f"-m{self.cell.share:g}"
        cell = f"{self.cell.data}-{self.cell.system}-p{self.cell.passes}{share}"
        rate = "" if self.rate is None else f"-r{self.rate:g}"
        return f"{cell}-{self.part}{self.seed}{rate}"

    def key(self) -> Row:
        """What tells its result from others."""
        return {**self.cell._asdict(), "part": self.part, "seed": self.seed, "rate": self.rate}


@functools.cache
def cells() -> Sequence[Cell]:
    """All cells, those of the most worth first."""
    return tuple(dict.fromkeys(cell for part in PLAN["order"] for cell in cells_of(part)))


def cells_of(part: Row) -> Iterator[Cell]:
    """The cells of all systems in a part of the order."""
    usual = [name for name, data in DATA.items() if not data.keys() & {"check", "alone"}]
    for system in SYSTEMS.values():
        for name in part.get("data", usual):
            if cell := _cell(system, name, part["passes"], part["share"]):
                yield cell


def _cell(system: Row, name: str, passes: int, share: float) -> Cell | None:
    first = PLAN["order"][0]
    keeps = METHODS[system["method"]].memory is not None
    here = name in system.get("data", DATA) and system["name"] in DATA[name].get("systems", SYSTEMS)
    if not here or (not keeps and share != first["share"]):
        return None
    if system.get("once"):
        passes = 1 if passes == first["passes"] else 0
    return Cell(name, system["name"], passes, share if keeps else None) if passes else None


def trials(cell: Cell) -> list[Job]:
    """The runs that choose a cell's rate; none where there is nothing to choose."""
    if len(cell.rates) == 1:
        return []
    return [Job(cell.tuned, "tuning", PLAN["tuning_seed"], rate) for rate in cell.rates]


def jobs(results: Mapping[str, Row]) -> list[Job]:
    """All runs in order; those whose rate is not chosen yet have none.

    Args:
        results: The finished ones by name.
    """
    found: dict[str, Job] = {}
    for part in PLAN["order"]:
        for seed in part["seeds"]:
            for cell in cells_of(part):
                rate = rate_of(cell, seed, results)
                for job in (*trials(cell), Job(cell, "evaluated", seed, rate)):
                    found.setdefault(job.name, job)
    return list(found.values())


def chosen(cell: Cell, results: Mapping[str, Row]) -> float | None:
    """The rate that tuning chose for a cell, the first of equally good ones.

    None before all are tried, or where none could be learned with.
    """
    tried = trials(cell)
    if not tried:
        return cell.rates[0]
    if any(job.name not in results for job in tried):
        return None
    sign = -1 if cell.regresses else 1
    good = [job for job in tried if "problem" not in results[job.name]]
    return max(good, key=lambda job: sign * results[job.name]["value"]).rate if good else None


def rate_of(cell: Cell, seed: int, results: Mapping[str, Row]) -> float | None:
    """The rate that a seed is evaluated with: the chosen one, or a lower one that was tried.

    The next lower one where it could not be learned with, as the error of a learner says.
    """
    rate = chosen(cell, results)
    lower = [each for each in cell.rates if rate is not None and each < rate]
    for each in sorted(lower, reverse=True):
        if "problem" in results.get(Job(cell, "evaluated", seed, rate).name, {}):
            rate = each
    return rate


def at_the_end(cell: Cell, rate: float | None) -> bool:
    """Whether a chosen rate is the lowest or the highest of those that were tried."""
    return len(cell.rates) > 1 and rate in (min(cell.rates), max(cell.rates))
