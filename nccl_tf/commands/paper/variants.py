"""Runs of a published cell with other hyper-parameters than its flagfile's."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nccl_tf.commands.paper.published import Published, published
from nccl_tf.commands.paper.rivals import rivals
from nccl_tf.records.record import Record
from nccl_tf.records.settings import flattened

_FIXED = ("method", "dataset", "max_tasks", "network", "hidden", "tasks")


class Variant(NamedTuple):
    """The records of one variant.

    Attributes:
        cell: The published cell, one of its metrics.
        changes: What differs from the cell's flagfile, such as "learning_rate 0.03".
        records: One for each seed.
    """

    cell: Published
    changes: str
    records: list[Record]


def variants(cells: Iterable[Published], records: Sequence[Record]) -> list[Variant]:
    """Runs of the same method, stream, network and memory that differ in anything else.

    A run that is a published cell's is no variant of another. A cell without a memory is compared
    with runs of any, and a run whose memory has a size of no cell with the cells of all sizes:
    the memory is then what differs.
    """
    by_key: dict[tuple[str, int | None, str], Variant] = {}
    all_settings = [cell.settings() for cell in (*published(), *rivals())]
    published_digests = {settings.digest() for settings in all_settings}
    sizes = {(s.method, s.dataset, s.memory_capacity) for s in all_settings}
    others = [record for record in records if record.settings_hash not in published_digests]
    for cell in cells:
        cell_settings, digest = cell.settings().as_json(), cell.settings().digest()
        for record in others:
            if not _is_variant(cell_settings, record.settings_json, sizes):
                continue
            key = (digest, cell.memory_size, record.settings_hash)
            if key not in by_key:
                by_key[key] = Variant(cell, changes(cell_settings, record.settings_json), [])
            if record not in by_key[key].records:
                by_key[key].records.append(record)
    return list(by_key.values())


def _is_variant(
    cell_settings: Mapping[str, Any],
    run_settings: Mapping[str, Any],
    sizes: Collection[tuple[Any, ...]],
) -> bool:
    if any(cell_settings[name] != run_settings.get(name) for name in _FIXED):
        return False
    size = run_settings["memory_capacity"]
    if cell_settings["memory_capacity"] in (None, size):
        return True
    return (cell_settings["method"], cell_settings["dataset"], size) not in sizes


def changes(cell_settings: Mapping[str, Any], run_settings: Mapping[str, Any]) -> str:
    """What differs from a cell's settings in those of a run, such as "learning_rate 0.03"."""
    before, after = flattened(cell_settings), flattened(run_settings)
    if after["first_task_learning_rate"] == after["learning_rate"]:
        after["first_task_learning_rate"] = before["first_task_learning_rate"]
    return ", ".join(
        f"{name} {value}" for name, value in after.items() if value != before.get(name)
    )
