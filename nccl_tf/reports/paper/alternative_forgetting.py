"""Our forgetting beside the published as it is defined, and with the last task counted in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nccl_tf.reports.paper.parity import (
    MIN_SEEDS,
    Comparison,
    compare,
)
from nccl_tf.reports.table import Table, or_dash, with_std

Record = Mapping[str, Any]


def with_last_task(record: Record) -> dict[str, Any]:
    """The record, with a forgetting from which the last task is subtracted too.

    (sum_{j<K} max_l a[l, j] - sum_{j<=K} a[K, j])/(K - 1), that is `metrics.forgetting` less
    a[K, K]/(K - 1): the whole last row is subtracted from the peaks of the tasks before the last,
    which has no peak yet. It is what the NCCL rows of Han et al. (2023) seem to hold (T9, T10), and
    how a single head comes to the printed forgetting of -0.125.
    """
    if record["forgetting"] is None:
        return dict(record)
    last = record["accuracy_matrix"][-1]
    return {**record, "forgetting": record["forgetting"] - last[-1] / (len(last) - 1)}


def last_task_table(
    table: str, comparisons: Iterable[Comparison], records: Sequence[Record]
) -> Table:
    """Both ways of counting with a verdict each, a row for each forgetting of three seeds or more.

    Args:
        table: "T1" to "T13".
        comparisons: Of its cells with the records.
        records: All records.
    """
    defined = [c for c in comparisons if c.metric == "forgetting" and c.seeds >= MIN_SEEDS]
    cells = [c.cell for c in defined]
    alternative = compare(cells, [with_last_task(record) for record in records])
    rows = [
        (
            cell.dataset, or_dash(cell.memory_size), cell.title,
            with_std(plain.published, plain.published_std, 3), *_ours(plain), *_ours(other),
        )
        for cell, plain, other in zip(cells, defined, alternative, strict=True)
    ]  # fmt: skip
    numbers = ("published", "as defined", "last task in")
    names = ("data set", "memory", "method", *numbers[:2], "verdict", numbers[2], "its verdict")
    return Table(
        f"{table}_last_task", f"{table}: forgetting with the last task counted in", names,
        tuple(rows), ("memory", *numbers),
        (
            "Last task in: less the last task's final accuracy over the number of tasks before it, "
            "as if the sum over the last row had all tasks and that over the peaks had not.",
        ),
    )  # fmt: skip


def _ours(comparison: Comparison) -> tuple[str, str]:
    return with_std(comparison.ours, comparison.ours_std, 3), comparison.verdict
