"""What the page of the runs holds, as JSON values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.settings import flattened
from nccl_tf.reports.page.distributions import as_json, distributions
from nccl_tf.reports.records import (
    Record,
    RecordedRun,
    by_settings,
    independent,
    is_trial,
    method_title,
    record_key,
)
from nccl_tf.reports.run_table import run_columns
from nccl_tf.reports.tables import differences, is_joint, stream_title

Json = dict[str, Any]


def page_data(runs: Sequence[RecordedRun]) -> tuple[Json, list[str]]:
    """Everything that the page shows of the runs.

    Returns:
        "columns" has a row for each run, as `run_columns` gives them; "groups" the seeds of one
        settings with their means, matrix, curve and step sizes, accuracies in percent; "streams"
        what they learned, those of a sweep's trials last. And a sentence for each steps.csv that
        cannot be read.
    """
    folders = {record_key(run.record): run.folder for run in runs}
    grouped = by_settings([run.record for run in runs], tuning=True)
    grouped.sort(key=lambda group: is_trial(group[0]))
    by_stream: dict[str, list[list[Record]]] = {}
    for group in grouped:
        by_stream.setdefault(_stream_title(group[0]), []).append(group)
    groups: list[Json] = []
    rows: list[Record] = []
    streams, problems = [], []
    for number, (title, members) in enumerate(by_stream.items()):
        first = members[0][0]
        streams.append(
            {"title": title, "tasks": first["evaluated_tasks"], "tuning": is_trial(first)}
        )
        for group, (label, differs) in zip(members, _labels(members), strict=True):
            steps = None
            try:
                steps = distributions([folders[record_key(record)] for record in group])
            except UserError as error:
                problems.append(str(error))
            place = list(range(len(rows), len(rows) + len(group)))
            groups.append(
                {
                    **_numbers(group),
                    "stream": number, "label": label, "differs": differs, "rows": place,
                    "steps": steps,
                }
            )  # fmt: skip
            rows += group
    columns = run_columns(rows)
    settings = {name for record in rows for name in flattened(record["settings"])}
    names = [name for name in columns if name in settings]
    return {
        "streams": streams, "groups": groups, "columns": columns, "setting_names": names,
    }, problems  # fmt: skip


def _stream_title(record: Record) -> str:
    return stream_title(record) + (", trials of a sweep" if is_trial(record) else "")


def _labels(groups: Sequence[Sequence[Record]]) -> list[tuple[str, str]]:
    """The name of each settings in plots, different from those of the others of the stream, and
    what sets it apart from the others of its method."""
    result = {}
    by_method: dict[str, list[Sequence[Record]]] = {}
    for group in groups:
        by_method.setdefault(method_title(group[0]), []).append(group)
    for title, members in by_method.items():
        changes = _changes(members)
        labels = [", ".join(filter(None, (title, change))) for change in changes]
        for group, label, change in zip(members, labels, changes, strict=True):
            key = group[0]["settings_hash"]
            unique = label if labels.count(label) == 1 else f"{label} {key[:8]}"
            result[key] = unique, change
    return [result[group[0]["settings_hash"]] for group in groups]


def _changes(members: Sequence[Sequence[Record]]) -> list[str]:
    """What sets each settings apart from the others of a method; where that is the same of some,
    what sets these apart from each other."""
    settings = [independent(group[0]["settings"]) for group in members]
    changes = differences(settings)
    for text in set(changes):
        alike = [place for place, change in enumerate(changes) if change == text]
        if 1 < len(alike) < len(changes):
            more = differences([settings[place] for place in alike])
            for place, change in zip(alike, more, strict=True):
                changes[place] = ", ".join(filter(None, (text, change)))
    return changes


def _numbers(group: Sequence[Record]) -> Json:
    first = group[0]
    matrices = np.array([record["accuracy_matrix"] for record in group], np.float64)
    so_far = np.stack(
        [100 * matrices[:, i, : i + 1].mean(1) for i in range(matrices.shape[1])], axis=1
    )
    kept = first["settings"]
    return {
        "id": first["settings_hash"][:12],
        "method": method_title(first),
        "joint": is_joint(first),
        "rate": kept["learning_rate"],
        "memory": kept.get("memory_capacity"),
        "seconds": float(np.mean([record["train_seconds"] for record in group])),
        "accuracy": _mean_std(group, "average_accuracy", 100),
        "forgetting": _mean_std(group, "forgetting"),
        "averaged_accuracy": _mean_std(group, "averaged_average_accuracy", 100),
        "averaged_forgetting": _mean_std(group, "averaged_forgetting"),
        "matrix": as_json(100 * matrices.mean(0)),
        "curve": [as_json(so_far.mean(0)), as_json(so_far.std(0))],
    }


def _mean_std(group: Sequence[Record], name: str, scale: float = 1) -> list[float | None] | None:
    """Mean and population standard deviation, null for one seed; null where one is undefined."""
    values = [record.get(name) for record in group]
    if any(value is None for value in values):
        return None
    scaled = scale * np.array(values, np.float64)
    return [float(scaled.mean()), float(scaled.std()) if len(scaled) > 1 else None]
