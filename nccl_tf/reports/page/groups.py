"""Groups of runs on the page: one for each settings, in the streams that they learned."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.records.record import Record
from nccl_tf.records.spread import Spread, spread
from nccl_tf.reports.figures.steps import read_steps
from nccl_tf.reports.labels import changed, in_words, told_apart
from nccl_tf.reports.records import (
    RecordedRun,
    by_settings,
    independent,
    is_trial,
    method_title,
    record_key,
    spread_of,
)
from nccl_tf.reports.tables import is_cumulative, is_joint, stream_names

STEP_SIZES = {
    "lambda": "Λ, inner product of the gradients",
    "alpha_h": "α<sub>H</sub>, step of the memory gradient",
    "beta_h": "β<sub>H</sub>, step of the stream gradient",
}
"""The columns of steps.csv that the page draws, with their titles."""
_PARTS = 40
_MOST_STEPS = 2**53


class Budget(NamedTuple):
    """What a method may use: methods with different ones are no fair comparison.

    Attributes:
        memory: Examples in memory; None without one.
        batch_size: Examples from the stream in a step.
        epochs: Passes over each task.
    """

    memory: int | None
    batch_size: int
    epochs: int


@dataclass(frozen=True, eq=False)
class Group:
    """The seeds of one settings.

    Args:
        records: Of the runs, by seed.
        label: Its name in figures, different from those of the others of its stream.
        change: What sets it apart from the others of its method; "" where nothing does.
        steps: By the name of each of `STEP_SIZES` that was measured, float64 [4, parts]: the last
            step of a part of the training, and the quantiles 5, 50 and 95 % of its windows.
    """

    records: Sequence[Record]
    label: str
    change: str
    steps: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The method's title."""
        return method_title(self.records[0])

    @property
    def budget(self) -> Budget:
        """Memory, batch size and passes of its settings."""
        settings = self.records[0].settings
        memory = settings.memory_capacity
        return Budget(memory, settings.batch_size, settings.epochs)

    def is_comparable(self, budget: Budget) -> bool:
        """Whether its settings have that budget, or that budget without the memory."""
        return self.budget in (budget, budget._replace(memory=None))

    @property
    def joint(self) -> bool:
        """Whether all tasks are learned at once."""
        return is_joint(self.records[0])

    @property
    def cumulative(self) -> bool:
        """Whether each task is learned with all examples so far."""
        return is_cumulative(self.records[0])

    def matrices(self) -> np.ndarray:
        """The accuracy matrices in percent, float64 [seeds, tasks, tasks], nan where unmeasured."""
        return 100 * np.array([record.accuracy_matrix for record in self.records], np.float64)

    def curve(self) -> Spread:
        """Accuracy over the tasks so far in percent, float64 [tasks]: of the seeds."""
        matrices = self.matrices()
        so_far = np.array([matrices[:, i, : i + 1].mean(1) for i in range(matrices.shape[1])])
        return spread(so_far.T)


def streams_of(runs: Sequence[RecordedRun]) -> tuple[dict[str, list[Group]], list[str]]:
    """The groups of each stream by its title, the best first; a sweep's trials are streams apart.

    The order of the runs does not matter.

    Args:
        runs: Finished runs.

    Returns:
        The streams, those of trials last, and a sentence for each steps.csv that cannot be read.
    """
    folders = {record_key(run.record): run.folder for run in runs}
    grouped = by_settings([run.record for run in runs], tuning=True)
    grouped.sort(key=lambda group: is_trial(group[0]))
    by_stream: dict[str, list[list[Record]]] = {}
    for records in grouped:
        by_stream.setdefault(_stream_title(records[0]), []).append(records)
    streams, problems = {}, []
    for title, members in by_stream.items():
        groups = []
        for records, (label, change) in zip(members, _labels(members), strict=True):
            steps: Mapping[str, np.ndarray] = {}
            try:
                steps = step_sizes([folders[record_key(record)] for record in records])
            except UserError as error:
                problems.append(str(error))
            groups.append(Group(records, label, change, steps))
        groups.sort(key=lambda group: -spread_of(group.records, "average_accuracy").mean)
        streams[title] = groups
    return streams, problems


def _stream_title(record: Record) -> str:
    """The stream in words; no two streams have the same."""
    stream, examples = stream_names(record)
    total, tuning, count = (
        getattr(record, name) for name in ("num_tasks", "tuning_tasks", "evaluated_tasks")
    )
    of = "" if examples == "all" else f" of {examples} examples"
    if is_trial(record):
        held_out = f"{tuning} held out of" if tuning else "examples held out of"
        return f"{stream}, {count} tasks{of}: trials of a sweep on {held_out} {total} tasks"
    first = "" if count == total - tuning else f"the first {count} of "
    more = f", {tuning} more held out for tuning" if tuning else ""
    return f"{stream}, {first}{total - tuning} tasks{of}{more}"


def step_sizes(folders: Sequence[Path | None]) -> dict[str, np.ndarray]:
    """The distributions of Lambda, alpha_H and beta_H in each fortieth of the runs' training.

    Args:
        folders: Of the runs; None for a published record, which has no steps.csv.

    Returns:
        As `Group.steps`.

    Raises:
        UserError: A steps.csv is there and cannot be read.
    """
    import pandas

    columns = {"step": "step", **{f"{name}_mean": name for name in STEP_SIZES}}
    paths = [folder / "steps.csv" for folder in folders if folder is not None]
    read = [pandas.DataFrame(read_steps(path, columns)) for path in paths if path.is_file()]
    windows = pandas.concat(read or [pandas.DataFrame()], ignore_index=True).rename(columns=columns)
    if "step" not in windows:
        return {}
    windows = windows[(windows["step"] > 0) & (windows["step"] < _MOST_STEPS)]
    windows = windows.replace([np.inf, -np.inf], np.nan)
    last = windows["step"].max()
    quantiles = windows.groupby(np.ceil(windows["step"] * _PARTS / last)).quantile(
        [0.05, 0.5, 0.95]
    )
    result = {}
    for name in STEP_SIZES:
        if name in quantiles and quantiles[name].notna().any():
            parts = quantiles[name].unstack()
            result[name] = np.stack([np.ceil(parts.index * last / _PARTS), *parts.to_numpy().T])
    return result


def best_of_methods(groups: Sequence[Group]) -> list[Group]:
    """The most accurate settings of each method, of groups of which the best come first."""
    best: dict[str, Group] = {}
    for group in groups:
        best.setdefault(group.method, group)
    return list(best.values())


def views_of(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """What a reader may choose to see of a stream, by a name for each.

    They are the groups that are comparable with a budget, those of the budget of most methods
    first, and all groups last, where these are more. A label says what sets a group apart in its
    view.

    Args:
        groups: Of the stream, the best first; one or more.
    """
    methods = {(group.method, group.budget) for group in groups}
    counts = Counter(budget for _, budget in methods)

    def order(budget: Budget) -> tuple[int, ...]:
        memory, batch_size, epochs = budget
        return (memory is not None, counts[budget], memory or 0, -epochs, -batch_size)

    views: dict[str, list[Group]] = {}
    seen: set[Budget] = set()
    for budget in sorted(counts, key=order, reverse=True):
        # Methods without a memory are shown beside those with one.
        if budget in seen:
            continue
        members = [group for group in groups if group.is_comparable(budget)]
        seen |= {group.budget for group in members}
        views[_in_words(budget)] = _relabelled(members)
    if len(views) > 1:
        views["all memory sizes, batch sizes and passes"] = list(groups)
    return views


def _in_words(budget: Budget) -> str:
    memory = "no memory" if budget.memory is None else f"a memory of {budget.memory}"
    passes = "one pass" if budget.epochs == 1 else f"{budget.epochs} passes"
    return f"{memory}, batches of {budget.batch_size}, {passes}"


def _relabelled(groups: Sequence[Group]) -> list[Group]:
    labels = _labels([group.records for group in groups])
    return [
        replace(group, label=label, change=change)
        for group, (label, change) in zip(groups, labels, strict=True)
    ]


def _labels(groups: Sequence[Sequence[Record]]) -> list[tuple[str, str]]:
    """The label and the change of each settings of a stream.

    A label names the memory's size where the stream has runs with several; a change then does not.
    """
    result = {}
    sizes = {group[0].settings.memory_capacity for group in groups} - {None}
    named = "memory_capacity" if len(sizes) > 1 else ""
    by_method: dict[str, list[Sequence[Record]]] = {}
    for group in groups:
        by_method.setdefault(method_title(group[0]), []).append(group)
    for title, members in by_method.items():
        changes = _changes(members, named)
        memories = [
            _memory(group[0].settings.memory_capacity if named else None) for group in members
        ]
        parts = zip(memories, changes, strict=True)
        labels = [", ".join(filter(None, (title, *part))) for part in parts]
        for group, label, change in zip(members, labels, changes, strict=True):
            key = group[0].settings_hash
            unique = label if labels.count(label) == 1 else f"{label} {key[:8]}"
            result[key] = unique, change
    return [result[group[0].settings_hash] for group in groups]


def _memory(size: int | None) -> str:
    return "" if size is None else f"memory {size}"


def _changes(members: Sequence[Sequence[Record]], named: str) -> list[str]:
    """How each settings differs from its method's defaults; where several read alike, what differs
    among these but for what is named already."""
    settings = [
        {
            name: value
            for name, value in independent(group[0].settings_json).items()
            if name != named
        }
        for group in members
    ]
    texts = [in_words(changed(group[0])) for group in members]
    return told_apart(texts, [("", one) for one in settings])
