"""What came of each system in each setting of a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nccl_tf.experiment.run.summary import AVERAGED
from nccl_tf.experiment.study.plan import Cell, Plan
from nccl_tf.methods.registry import METHODS, get_method
from nccl_tf.reports.records import mean_std

Record = Mapping[str, Any]
# What makes two runs learn the same stream with the same network.
_STREAM = (
    "dataset", "head", "num_tasks", "tuning_tasks", "tasks", "max_tasks", "examples_per_task",
    "batch_size", "network", "hidden", "angles",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A system in a setting.

    Args:
        cell: Both.
        tuned: What tuning has chosen, by the names of flags; empty before it has.
        memory: Examples that its memory holds; None without one, and before tuning.
        records: Of the seeds that the plan reports.
        refusal: Why it does not run, "" if it does.
        averaging_refusal: Why it has no figures of averaged weights, "" if it can have.
    """

    cell: Cell
    tuned: Mapping[str, Any]
    memory: int | None
    records: tuple[Record, ...]
    refusal: str
    averaging_refusal: str

    @property
    def title(self) -> str:
        """The system's name in tables."""
        system = self.cell.system
        return system.title or get_method(str(system.flags["method"])).title

    @property
    def averaged(self) -> bool:
        """Whether every record has figures of the averaged weights."""
        return bool(self.records) and all(AVERAGED in record for record in self.records)

    def mean_std(self, name: str) -> tuple[float, float]:
        """Mean and population standard deviation of a number of the records; nan without any."""
        return mean_std(self.records, name)


def read_results(plan: Plan, records: Sequence[Record]) -> dict[str, list[Result]]:
    """The results of each setting by its name, the most accurate first, those without last.

    Raises:
        UserError: A flag file is not of the plan.
    """
    by_key = {(record["settings_hash"], record["seed"]): record for record in records}
    result: dict[str, list[Result]] = {row.name: [] for row in plan.settings}
    for cell in plan.cells():
        result[cell.setting.name].append(_read(cell, by_key))
    return {name: sorted(rows, key=_order) for name, rows in result.items()}


def _read(cell: Cell, records: Mapping[tuple[str, int], Record]) -> Result:
    refusal = cell.refusal()
    chosen = None if refusal else cell.chosen()
    averaging = get_method(str(cell.system.flags["method"])).option_refusal("average_weights")
    if chosen is None:
        return Result(cell, {}, None, (), refusal, averaging)
    values, settings = chosen
    keys = [(settings.digest(), seed) for seed in cell.seeds]
    found = tuple(records[key] for key in keys if key in records)
    tuned = {name: values[name] for name in cell.grid}
    return Result(cell, tuned, settings.memory_capacity, found, refusal, averaging)


def _order(result: Result) -> tuple[bool, float]:
    return (not result.records, -result.mean_std("average_accuracy")[0] if result.records else 0.0)


def joint_training(result: Result, records: Sequence[Record]) -> list[Record]:
    """The records of joint training, in one pass, of the stream and network of a result.

    Returns:
        Those of the settings with the most seeds, the better ones of two; none where there is no
        such record, or the result has none.
    """
    if not result.records:
        return []
    stream = _stream(result.records[0])
    groups: dict[str, list[Record]] = {}
    for record in records:
        row = METHODS.get(record["method"])
        if row and row.joint and _stream(record) == stream and record["settings"]["epochs"] == 1:
            groups.setdefault(record["settings_hash"], []).append(record)
    accuracy = "average_accuracy"
    means = {name: float(np.mean([r[accuracy] for r in group])) for name, group in groups.items()}
    most = max(groups, key=lambda name: (len(groups[name]), means[name]), default=None)
    return [] if most is None else groups[most]


def _stream(record: Record) -> list[Any]:
    return [record["settings"].get(name) for name in _STREAM]
