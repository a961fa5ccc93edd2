"""Parity with each table of the paper, as tables of text."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nccl_tf.commands.paper.alternative_forgetting import last_task_table
from nccl_tf.commands.paper.parity import (
    MIN_SEEDS,
    NO_VERDICT,
    TIME_RATIO,
    Comparison,
    compare,
    counts,
    select_cells,
)
from nccl_tf.commands.paper.published import Published, tf1_reference
from nccl_tf.commands.paper.ranking import Order, orders
from nccl_tf.commands.paper.rivals import CONTENTS as RIVAL_TABLES
from nccl_tf.commands.paper.variants import variants
from nccl_tf.records.record import Record
from nccl_tf.reports.table import Table, mean_std, or_dash, titled_markdown, with_std

CONTENTS = {
    "T1": "the main table",
    "T2": "class-incremental split CIFAR-100, memory of 10,000",
    "T3": "NCCL + Ring over beta_max",
    "T4": "training time over that of ER-Ring on the same data",
    "T5": "permuted MNIST, 60,000 examples a task",
    "T6": "split CIFAR-100, reduced ResNet-18",
    "T7": "split mini-ImageNet",
    "T8": "split CIFAR-100, full ResNet-18",
    "T9": "permuted MNIST, 10,000 examples a task",
    "T10": "split MNIST, hidden layers of 256",
    "T11": "split MNIST, hidden layers of 400, memory of 500",
    "T12": "split CIFAR-10, memory of 500",
    "T13": "class-incremental split CIFAR-100, memory of 10,000, all systems",
    **RIVAL_TABLES,
}
"""What each table of the paper, and of later papers, shows."""

_METRICS = {
    "accuracy": ("accuracy %", 1), "forgetting": ("forgetting", 3), TIME_RATIO: ("time ratio", 2),
}  # fmt: skip


@dataclass(frozen=True)
class Parity:
    """Parity of one table of the paper.

    Args:
        table: "T1" to "T13".
        comparisons: Of its cells.
        records: All records.
    """

    table: str
    comparisons: Sequence[Comparison]
    records: Sequence[Record]

    @property
    def has_runs(self) -> bool:
        """Whether any cell has a run of ours."""
        return any(comparison.seeds for comparison in self.comparisons)

    def tables(self) -> list[Table]:
        """The verdicts, the order of the methods, forgetting both ways and other settings' runs."""
        parts = [verdict_table(self.table, self.comparisons)]
        sure = [c for c in self.comparisons if not c.cell.doubt]
        if orders(self.comparisons):
            parts.append(order_table(self.table, orders(self.comparisons), orders(sure)))
        others = (
            last_task_table(self.table, self.comparisons, self.records),
            variant_table(self.table, [c.cell for c in self.comparisons], self.records),
        )
        return [*parts, *(table for table in others if table.rows)]


def parities(
    cells: Iterable[Published],
    records: Sequence[Record],
) -> list[Parity]:
    """Parity of each table that the cells are of, in the paper's order.

    Args:
        cells: The published cells.
        records: All records.
    """
    by_table: dict[str, list[Comparison]] = {}
    for comparison in compare(cells, records):
        by_table.setdefault(comparison.cell.table, []).append(comparison)
    return [Parity(table, group, records) for table, group in by_table.items()]


def parity_page(
    cells: Sequence[Published],
    records: Sequence[Record],
    *,
    every: bool,
) -> str:
    """The tables in Markdown with their titles; with `every`, also those without a run of ours."""
    shown = (parity for parity in parities(cells, records) if every or parity.has_runs)
    return titled_markdown(table for parity in shown for table in parity.tables())


def tables_with_runs(records: Sequence[Record]) -> list[Table]:
    """The tables beside published numbers, the paper's and later papers', that have a run."""
    with_runs = (one for one in parities(select_cells(table=None), records) if one.has_runs)
    return [table for parity in with_runs for table in parity.tables()]


def verdict_table(table: str, comparisons: Sequence[Comparison]) -> Table:
    """A row for each cell, the counts below it, and the doubts as letters that are explained."""
    doubts = list(dict.fromkeys(c.cell.doubt for c in comparisons if c.cell.doubt))
    letters = {doubt: chr(ord("a") + i) for i, doubt in enumerate(doubts)}
    reference = {c.cell: _tf1(c) for c in comparisons}
    names = ["data set", "memory", "method", "metric", "published", "ours", "seeds", "difference"]
    names += ["TF1 code"] if any(reference.values()) else []
    rows = []
    for c in comparisons:
        label, digits = _METRICS[c.metric]
        mark = f" ({letters[c.cell.doubt]})" if c.cell.doubt else ""
        rows.append(
            (
                c.cell.dataset,
                or_dash(c.cell.memory_size),
                c.cell.title,
                label,
                with_std(c.published, c.published_std, digits),
                with_std(c.ours, c.ours_std, digits),
                str(c.seeds),
                "-" if c.difference is None else f"{c.difference:+.{digits}f}",
                *([reference[c.cell] or "-"] if any(reference.values()) else []),
                f"{c.verdict}{mark}",
            )
        )
    explained = (f"{letters[doubt]}: {doubt}" for doubt in doubts)
    notes = [summary(comparisons), *explained]
    return Table(
        table, f"{table}: {CONTENTS[table]}", (*names, "verdict"), tuple(rows),
        ("memory", "published", "ours", "seeds", "difference", "TF1 code"), tuple(notes),
    )  # fmt: skip


def summary(comparisons: Sequence[Comparison]) -> str:
    """The counts of verdicts, with doubtful cells and, where some are sure, without."""
    sure = [c for c in comparisons if not c.cell.doubt]
    text = _describe_counts(comparisons)
    doubtful = len(comparisons) - len(sure)
    if not doubtful:
        return text
    if not sure:
        return f"{text}; all of them doubtful"
    return f"{text}; without the {doubtful} doubtful: {_describe_counts(sure)}"


def order_table(table: str, every: Sequence[Order], sure: Sequence[Order]) -> Table:
    """A row for each column of the paper's table.

    Args:
        table: "T1" to "T13".
        every: The order of all cells.
        sure: The order of the cells that are not doubtful; shown where it differs.
    """
    rows = [
        (
            which,
            order.dataset,
            or_dash(order.memory_size),
            _METRICS[order.metric][0],
            str(order.methods),
            "-" if math.isnan(order.correlation) else f"{order.correlation:.2f}",
            str(len(order.same)),
            str(len(order.reversed)),
            str(len(order.open)),
            "; ".join(f"{high} over {low}" for high, low in order.reversed) or "-",
        )
        for which, chosen in (("all", every), ("not doubtful", sure))
        for order in chosen
        if which == "all" or order not in every
    ]
    numbers = ("memory", "methods", "rank correlation", "same", "reversed", "open")
    return Table(
        f"{table}_order", f"{table}: order of the methods",
        ("cells", "data set", "memory", "metric", *numbers[1:], "reversed pairs"),
        tuple(rows), numbers,
        (
            f"Methods with {MIN_SEEDS} seeds or more. Pairs that the paper separates by more "
            "than two standard errors: separated the same way by our runs, the other way (shown in "
            "the paper's order), or within two of their standard errors (open).",
        ),
    )  # fmt: skip


def variant_table(table: str, cells: Sequence[Published], records: Sequence[Record]) -> Table:
    """Runs of the table's cells with other hyper-parameters than the flagfile's."""
    rows = [
        (
            variant.cell.dataset,
            or_dash(variant.cell.memory_size),
            variant.cell.title,
            variant.changes,
            str(len(variant.records)),
            mean_std(variant.records, "average_accuracy", 100, 1),
            mean_std(variant.records, "forgetting", 1, 3),
        )
        for variant in variants(cells, records)
    ]
    numbers = ("memory", "seeds", "accuracy %", "forgetting")
    names = ("data set", "memory", "method", "other than its flagfile", *numbers[1:])
    return Table(
        f"{table}_other_settings", f"{table}: runs with other settings", names, tuple(rows),
        numbers,
    )  # fmt: skip


def _describe_counts(comparisons: Sequence[Comparison]) -> str:
    """How many cells have each verdict; "no verdict" only where there are such."""
    parts = [
        f"{count} {name}"
        for name, count in counts(comparisons).items()
        if count or name != NO_VERDICT
    ]
    return f"{len(comparisons)} cell{'s' * (len(comparisons) != 1)}: {', '.join(parts)}"


def _tf1(comparison: Comparison) -> str:
    """The TF1 code base's value for that cell, "" where it was not run."""
    cell = comparison.cell
    if cell.table != "T9":
        return ""
    runs = [
        getattr(run, cell.metric)
        for run in tf1_reference()
        if (run.method, run.dataset) == (cell.method, cell.dataset)
        and (run.memory_size == cell.memory_size or cell.settings().memory is None)
    ]
    return ", ".join(f"{value:.{_METRICS[cell.metric][1]}f}" for value in runs)
