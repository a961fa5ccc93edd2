"""Readings of NCCL on split CIFAR-100: the table of README.md of the published records.

python -m studies.readings [--check]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from docs.make.generated_files import make_part
from nccl_tf.commands.paper.published import Published, published
from nccl_tf.commands.paper.variants import changes
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.records.record import Record
from nccl_tf.reports.records import Records
from nccl_tf.reports.table import markdown_table

HERE = Path(__file__).parent
FOLDERS = HERE.parents[1] / "results", HERE / "records"
PLUGIN, PAGE = HERE / "batch_statistics.py", HERE / "README.md"
TABLE, METHODS = "T6", ("nccl_ring", "nccl_reservoir")
OF_PLUGIN, AT_TEST, AS_PRINTED = "_bs", "batch statistics at test", "as printed"
NEAR_POINTS, NEAR_FORGETTING = 2.0, 0.02
"""How far a reading may be off to fit a cell."""

Cell = tuple[str, int]
"""A method and its slots per class."""


def readings(records: Sequence[Record]) -> dict[str, dict[Cell, list[Record]]]:
    """The runs of NCCL in the paper's setting, by what differs from it and by cell.

    Args:
        records: Of finished runs.
    """
    found: dict[str, dict[Cell, list[Record]]] = {}
    for cell in _cells("accuracy"):
        settings = cell.settings()
        for record in records:
            method = record.method.removesuffix(OF_PLUGIN)
            own = {**record.settings_json, "method": method}
            fixed = ("method", "dataset", "head", "network", "num_tasks", "memory_capacity")
            if any(own[name] != settings.as_json()[name] for name in fixed):
                continue
            what = [changes(settings.as_json(), own)] if own != settings.as_json() else []
            what = [*filter(None, what), *([AT_TEST] if method != record.method else [])]
            by_cell = found.setdefault(", ".join(what) or AS_PRINTED, {})
            by_cell.setdefault(_key(cell), []).append(record)
    return found


def table(records: Sequence[Record]) -> str:
    """The paper's numbers, then a row for each reading, in Markdown.

    A cell has accuracy in percent and forgetting, and the number of seeds where there are several;
    it is bold where both come near the paper's.

    Args:
        records: Of finished runs.
    """
    printed = {
        _key(cell): (cell.mean, other.mean)
        for cell, other in zip(_cells("accuracy"), _cells("forgetting"), strict=True)
    }
    rows = [["the paper", *(f"{accuracy:.1f}, {lost:.3f}" for accuracy, lost in printed.values())]]
    found = readings(records)
    for what, by_cell in sorted(found.items(), key=lambda item: (item[0] != AS_PRINTED, item[0])):
        rows.append([what, *(_shown(by_cell.get(key, []), printed[key]) for key in printed)])
    names = ["reading", *(f"{method.removeprefix('nccl_')}, m = {m}" for method, m in printed)]
    return markdown_table(names, rows, names[1:])


def _cells(metric: str) -> list[Published]:
    return [
        cell
        for cell in published()
        if (cell.table, cell.metric) == (TABLE, metric) and cell.method in METHODS
    ]


def _key(cell: Published) -> Cell:
    assert cell.memory_size is not None
    return cell.method, cell.memory_size


def _shown(records: Sequence[Record], printed: tuple[float, float]) -> str:
    if not records:
        return "-"
    accuracy = 100 * float(np.mean([record.average_accuracy for record in records]))
    forgetting = float(np.mean([record.forgetting for record in records]))
    text = f"{accuracy:.1f}, {forgetting:.3f}"
    text += f" ({len(records)})" if len(records) > 1 else ""
    near = abs(accuracy - printed[0]) <= NEAR_POINTS
    return f"**{text}**" if near and abs(forgetting - printed[1]) <= NEAR_FORGETTING else text


def main() -> int:
    """Write the table between the marks of the page; 1 if `--check` finds another."""

    def content(_: argparse.Namespace) -> str:
        load_plugins([str(PLUGIN)])
        return table([one for folder in FOLDERS for one in Records.below(folder).records])

    parser = argparse.ArgumentParser(description=__doc__)
    return make_part(parser, None, PAGE, "table", content)


if __name__ == "__main__":
    sys.exit(main())
