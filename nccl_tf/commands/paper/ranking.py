"""Whether our runs put the methods into the paper's order."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import scipy.stats

from nccl_tf.commands.paper.parity import (
    MIN_SEEDS,
    Comparison,
    tolerance,
)


@dataclass(frozen=True)
class Order:
    """The methods of one column of a table, in the paper's order and in ours.

    Args:
        dataset: Name of the stream.
        memory_size: As in the table.
        metric: As in `Comparison`.
        methods: Number of methods that have a verdict.
        correlation: Spearman's rank correlation of their means; nan below three methods or where
            all means are equal.
        same: Pairs (higher, lower in the paper) that we separate the same way.
        reversed: Pairs that we separate the other way.
        open: Pairs whose difference is within two standard errors in our runs.
    """

    dataset: str
    memory_size: int | None
    metric: str
    methods: int
    correlation: float
    same: tuple[tuple[str, str], ...]
    reversed: tuple[tuple[str, str], ...]
    open: tuple[tuple[str, str], ...]


def orders(comparisons: Iterable[Comparison]) -> list[Order]:
    """The order in each column with at least two methods of three seeds or more.

    Pairs are those that the paper separates by more than two standard errors; a cell without a
    published standard deviation is in none.
    """
    columns: dict[tuple[str, int | None, str], list[Comparison]] = {}
    for comparison in comparisons:
        if comparison.seeds >= MIN_SEEDS:
            columns.setdefault(comparison.cell.column, []).append(comparison)
    return [_order(column) for column in columns.values() if len(column) > 1]


def _order(column: Sequence[Comparison]) -> Order:
    same: list[tuple[str, str]] = []
    reversed_pairs: list[tuple[str, str]] = []
    open_pairs: list[tuple[str, str]] = []
    for pair in itertools.combinations(column, 2):
        high, low = sorted(pair, key=lambda c: c.published, reverse=True)
        if not _paper_separates(high, low):
            continue
        names = (high.cell.label, low.cell.label)
        # Both have three runs or more, and with them a mean and a deviation.
        gap = (high.ours or 0.0) - (low.ours or 0.0)
        errors = math.hypot(
            *(tolerance(0.0, part.ours_std or 0.0, part.seeds) for part in (high, low))
        )
        (open_pairs if abs(gap) <= errors else same if gap > 0 else reversed_pairs).append(names)
    first = column[0]
    return Order(
        first.cell.dataset, first.cell.memory_size, first.metric, len(column),
        _correlation(column), tuple(same), tuple(reversed_pairs), tuple(open_pairs),
    )  # fmt: skip


def _paper_separates(high: Comparison, low: Comparison) -> bool:
    if high.published_std is None or low.published_std is None:
        return False
    errors = 2 * math.hypot(high.published_std, low.published_std) / math.sqrt(high.cell.seeds - 1)
    return high.published - low.published > errors


def _correlation(column: Sequence[Comparison]) -> float:
    theirs = [comparison.published for comparison in column]
    ours = [comparison.ours for comparison in column]
    if len(column) < 3 or len(set(theirs)) == 1 or len(set(ours)) == 1:
        return math.nan
    return float(scipy.stats.spearmanr(theirs, ours).statistic)
