"""Our forgetting beside the published as it is defined, and with the last task counted in."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nccl_tf.commands.paper.parity import (
    MIN_SEEDS,
    Comparison,
    compare,
)
from nccl_tf.records.record import Record
from nccl_tf.reports.table import Table, or_dash, with_std
from nccl_tf.streams.catalog import DATASETS


def with_last_task(record: Record) -> Record:
    """The record, with a forgetting in which the last task counts too.

    (sum_{j<=K} max_{l<K} a[l, j] - sum_{j<=K} a[K, j])/(K - 1), that is `metrics.forgetting` less
    (a[K, K] - p)/(K - 1), p the accuracy on the last task before it is trained. It is what the NCCL
    rows of Han et al. (2023) seem to hold (T9, T10), and how a single head comes to the printed
    forgetting of -0.125. The TF1 code base that the paper follows evaluates all tasks at every
    stage of a permuted stream, whose classes are known from the first task on: p is then the
    accuracy that the record has of the next task, after task K - 1. On split sets it stops at the
    task at hand and leaves zeros (`test_task_sequence` of conv_split_cifar.py,
    github.com/arslan-chaudhry/orthog_subspace): p is 0. Where a run did not measure p, there is no
    such forgetting.
    """
    if record.forgetting is None:
        return record
    *_, before, (*_, after) = record.accuracy_matrix
    p = before[-1] if _evaluates_all_tasks(record.dataset) else 0.0
    if p is None or after is None:
        return replace(record, forgetting=None)
    return replace(
        record, forgetting=record.forgetting - (after - p) / (record.evaluated_tasks - 1)
    )


def _evaluates_all_tasks(dataset: str) -> bool:
    """Whether the TF1 code base evaluates tasks of a stream that are not trained yet."""
    return dataset in DATASETS and DATASETS[dataset].kind == "permuted"


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
            "Last task in: less the last task's gain over the number of tasks before it, as if its "
            "accuracy before it was trained were a peak; that is 0 on split streams, where the TF1 "
            "code base does not evaluate later tasks, and as measured on permuted ones.",
        ),
    )  # fmt: skip


def _ours(comparison: Comparison) -> tuple[str, str]:
    return with_std(comparison.ours, comparison.ours_std, 3), comparison.verdict
