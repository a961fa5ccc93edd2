"""What our runs say of the paper's numbers of NCCL: two tables, and sentences that count all.

They are made of the cells of parity, so that no sentence can name what agrees and leave out the
rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nccl_tf.commands.paper.alternative_forgetting import with_last_task
from nccl_tf.commands.paper.parity import (
    AGREES,
    MISSING,
    NO_VERDICT,
    TIME_RATIO,
    TOO_FEW_SEEDS,
    Comparison,
    compare,
)
from nccl_tf.commands.paper.published import Published
from nccl_tf.commands.paper.variants import variants
from nccl_tf.records.record import Record
from nccl_tf.reports.table import markdown_table

_METHODS = ("nccl_ring", "nccl_reservoir")
_MAIN, _FULL_NETWORK, _OTHERS = "T1", ("T8", "T3"), ("T11", "T13")
_STREAMS = {
    "permuted_mnist": "permuted MNIST", "split_mnist": "split MNIST",
    "split_cifar10": "split CIFAR-10", "split_cifar100": "split CIFAR-100",
    "split_mini_imagenet": "split mini-ImageNet",
}  # fmt: skip
_TIMES = "training times"
_NEAR = {"accuracy": 2.0, "forgetting": 0.02}
"""How far another reading may be off, in points and in forgetting, to fit a cell."""


class _Number(NamedTuple):
    """A published number of NCCL, which several tables may print.

    Attributes:
        comparison: With our runs.
        last: The same, of a forgetting in which the last task counts too.
        tables: Those that print it.
    """

    comparison: Comparison
    last: Comparison
    tables: tuple[str, ...]

    @property
    def cell(self) -> Published:
        """Its cell in the first of these tables."""
        return self.comparison.cell

    @property
    def place(self) -> str:
        """What it is counted with: the others of its stream, or the training times."""
        return _TIMES if self.comparison.metric == TIME_RATIO else _place(self.cell)


def nccl_table(cells: Sequence[Published], records: Sequence[Record]) -> str:
    """NCCL's rows of the main table and of two others, and every row of the full ResNet-18, that
    have a run of ours, in Markdown.

    Args:
        cells: Published cells.
        records: All records.
    """
    rows: dict[str, list[Comparison]] = {}
    shown = (_MAIN, *_FULL_NETWORK, *_OTHERS)
    chosen = [cell for cell in cells if cell.table in shown and _is_shown(cell)]
    chosen.sort(key=lambda cell: (shown.index(cell.table), cell.dataset))
    for c in compare(chosen, records):
        of_settings = rows.setdefault(c.cell.settings().digest(), [])
        if c.seeds and not any(other.metric == c.metric for other in of_settings):
            of_settings.append(c)
    lines = [_row(comparisons) for comparisons in rows.values() if comparisons]
    names = ("table, stream, memory", "paper: accuracy %, forgetting", "here", "runs")
    return markdown_table(names, lines, ("runs",))


def split_cifar10_table(cells: Sequence[Published], records: Sequence[Record]) -> str:
    """Accuracies of T12 with runs of its settings, but for when they are evaluated, in Markdown.

    Such a run evaluates each task once and all of them at the end, which leaves the average
    accuracy as it is; `evaluate` is a setting, so that no cell counts it.

    Args:
        cells: Published cells.
        records: All records.
    """
    by_digest: dict[str, list[Record]] = {}
    for record in records:
        if record.dataset == "split_cifar10":
            digest = replace(record.settings, evaluate=None).digest()
            by_digest.setdefault(digest, []).append(record)
    lines = []
    for cell in cells:
        found = by_digest.get(cell.settings().digest(), [])
        if (cell.table, cell.metric) == ("T12", "accuracy") and found:
            rate = found[0].settings.learning_rate
            ours = 100 * _mean(found, "average_accuracy")
            numbers = (f"{rate:g}", f"{cell.mean:.1f}", f"{ours:.1f}", str(len(found)))
            lines.append((cell.title, *numbers))
    names = ("system", "learning rate", "paper: accuracy %", "here", "runs")
    return markdown_table(names, lines, names[1:])


def nccl_verdicts(cells: Sequence[Published], records: Sequence[Record]) -> str:
    """Points in Markdown: how many of NCCL's numbers agree on each stream, and which have too few
    runs or none; each number once, and doubtful ones only where they have no run.

    Args:
        cells: Published cells.
        records: All records.
    """
    judged: dict[str, list[_Number]] = {}
    few: list[_Number] = []
    missing: list[_Number] = []
    for number in _numbers([cell for cell in cells if cell.method in _METHODS], records):
        verdict = number.comparison.verdict
        if verdict == MISSING:
            missing.append(number)
        elif not number.cell.doubt and verdict == TOO_FEW_SEEDS:
            few.append(number)
        elif not number.cell.doubt:
            judged.setdefault(number.place, []).append(number)
    tried = _tried(cells)
    readings = {_place(tried[0]): f"; {_other_readings(tried, records)}"} if tried else {}
    points = [
        *(
            f"**{place}**: {_agreement(numbers)}{readings.get(place, '')}"
            for place, numbers in judged.items()
        ),
        f"**fewer than three runs**: {_listed(few)}",
        f"**no run**: {_listed(missing)}",
    ]
    return "".join(f"* {point}.\n" for point in points)


def _tried(cells: Sequence[Published]) -> list[Published]:
    """The cells that have been run with other settings than the printed ones."""
    return [cell for cell in cells if cell.table == "T6" and cell.method in _METHODS]


def _other_readings(tried: Sequence[Published], records: Sequence[Record]) -> str:
    """How many of them have run, and how many fit a cell in both metrics, as a clause."""
    printed = {(cell.settings().digest(), cell.metric): cell.mean for cell in tried}
    readings = variants(tried, records)
    fitting = {
        reading.changes
        for reading in readings
        if all(
            abs(number - printed[reading.cell.settings().digest(), metric]) <= _NEAR[metric]
            for metric, number in (
                ("accuracy", 100 * _mean(reading.records, "average_accuracy")),
                ("forgetting", _mean(reading.records, "forgetting")),
            )
        )
    }
    count = len({reading.changes for reading in readings})
    return (
        f"{len(fitting)} of {count} other readings come within {_NEAR['accuracy']:g} points and "
        f"{_NEAR['forgetting']:g} in forgetting"
    )


def _is_shown(cell: Published) -> bool:
    full = cell.table in _FULL_NETWORK
    return cell.network == "resnet18" if full else cell.method in _METHODS


def _numbers(cells: Sequence[Published], records: Sequence[Record]) -> list[_Number]:
    """Each number once, in the order of the tables."""
    found: dict[tuple[Any, ...], _Number] = {}
    ours = compare(cells, records)
    counted = compare(cells, [with_last_task(record) for record in records])
    for c, last in zip(ours, counted, strict=True):
        key = (c.cell.settings().digest(), c.metric, c.published, bool(c.cell.doubt))
        known = found.get(key, _Number(c, last, ()))
        found[key] = known._replace(tables=(*known.tables, c.cell.table))
    return list(found.values())


def _place(cell: Published) -> str:
    """The stream; of split CIFAR-100 with the head or the network, of which it has several."""
    name = _STREAMS[cell.dataset]
    if cell.dataset != "split_cifar100":
        return name
    if cell.head == "single":
        return f"{name}, single head"
    return f"{name}, {'full' if cell.network == 'resnet18' else 'reduced'} ResNet-18"


def _row(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    cell = comparisons[0].cell
    examples = f", {cell.examples_per_task:,} a task" if cell.dataset == "permuted_mnist" else ""
    cap = "" if cell.beta_max is None else f", beta_max {cell.beta_max:g}"
    size = f"{cell.memory_size:,}{' in all' if cell.memory_is_total else ''}"
    method = cell.title.partition(" (")[0]
    digits = {"accuracy": 1, "forgetting": 3}
    return (
        f"{cell.table}, {_place(cell)}{examples}: {method}, {size}{cap}",
        ", ".join(f"{c.published:.{digits[c.metric]}f}" for c in comparisons),
        ", ".join(f"{c.ours:.{digits[c.metric]}f}" for c in comparisons),
        str(comparisons[0].seeds),
    )


def _agreement(numbers: Sequence[_Number]) -> str:
    """How many numbers of a stream agree, in accuracy and in forgetting, as a clause."""
    by_metric: dict[str, list[_Number]] = {}
    for number in numbers:
        by_metric.setdefault(number.comparison.metric, []).append(number)
    if TIME_RATIO in by_metric:
        return _times(by_metric[TIME_RATIO])
    parts: list[str] = []
    for metric, found in by_metric.items():
        agreeing = sum(number.comparison.verdict == AGREES for number in found)
        counted = sum(number.last.verdict == AGREES for number in found)
        note = f" ({counted} with the last task counted)" if metric == "forgetting" else ""
        if metric == "accuracy":
            runs = _of_a_run(found)
            same = sum(2 * sum(run) > len(run) for run in runs)
            distinct = f"by distinct runs {same} of {len(runs)}, " if len(runs) < len(found) else ""
            others = [number for number in found if number.comparison.verdict != AGREES]
            where = f"; not in {_tables(others)}" if agreeing and others else ""
            note = f" ({distinct}{_range(found)}{where})"
        parts.append(f"{metric} {'' if parts else 'agrees '}in {agreeing} of {len(found)}{note}")
    return ", ".join(parts)


def _times(numbers: Sequence[_Number]) -> str:
    """Training times over ER-Ring's, ours for the paper's, as a clause."""
    parts = [
        f"{number.cell.title} {number.comparison.ours:.2f} for {number.comparison.published:.2f}"
        for number in numbers
    ]
    return f"over ER-Ring's, here for there: {', '.join(parts)}; {NO_VERDICT}"


def _of_a_run(numbers: Sequence[_Number]) -> list[list[bool]]:
    """Whether the numbers of each run agree: settings may differ in what changes no bit of one."""
    runs: dict[Any, list[bool]] = {}
    for place, number in enumerate(numbers):
        states = number.comparison.states
        key = states if all(states) else place
        runs.setdefault(key, []).append(number.comparison.verdict == AGREES)
    return list(runs.values())


def _range(numbers: Sequence[_Number]) -> str:
    """The differences of numbers that have runs."""
    off = [n.comparison.difference for n in numbers if n.comparison.difference is not None]
    return f"{min(off):+.1f} to {max(off):+.1f} points"


def _listed(numbers: Sequence[_Number]) -> str:
    """How many numbers on each stream, and their tables."""
    by_place: dict[str, list[_Number]] = {}
    for number in numbers:
        by_place.setdefault(number.place, []).append(number)
    parts = [f"{len(found)} on {place} ({_tables(found)})" for place, found in by_place.items()]
    return "; ".join(parts) or "none"


def _tables(numbers: Iterable[_Number]) -> str:
    names = {table for number in numbers for table in number.tables}
    return ", ".join(sorted(names, key=lambda name: int(name[1:])))


def _mean(records: Sequence[Record], name: str) -> float:
    return sum(getattr(record, name) for record in records) / len(records)
