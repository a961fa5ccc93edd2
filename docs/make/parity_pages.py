"""Parity as pages: one for each stream, the counts of all verdicts, and the numbers of NCCL."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from docs.make.generated_files import put_between_marks, read_text
from docs.make.nccl import nccl_table, nccl_verdicts, split_cifar10_table
from nccl_tf.commands.paper.parity import Comparison, counts
from nccl_tf.commands.paper.parity_tables import CONTENTS, Parity, parities
from nccl_tf.commands.paper.published import Published
from nccl_tf.errors import UserError
from nccl_tf.records.record import Record
from nccl_tf.reports.table import Table, folded_markdown, markdown_table

INDEX = "index.md"
"""The page of a folder that counts the verdicts."""

_OF_NCCL = {
    "nccl_table": nccl_table,
    "nccl_verdicts": nccl_verdicts,
    "split_cifar10_table": split_cifar10_table,
}
"""What is made between the marks of these names, where a file has them."""
_NO_RUNS = "No run of ours has the settings of a published number of this stream.\n"


def put_nccl(
    path: Path,
    cells: Sequence[Published],
    records: Sequence[Record],
    *,
    check: bool,
) -> bool | None:
    """Put the table and the sentences on NCCL into a file, as far as it has their marks.

    Args:
        path: The file.
        cells: Of all tables.
        records: All records.
        check: Change nothing.

    Returns:
        Whether it was up to date; None where it has none of the marks.

    Raises:
        UserError: The file cannot be read or written, or has one mark of a pair.
    """
    text = read_text(path)
    names = [name for name in _OF_NCCL if f"<!-- {name}:" in text]
    current = [
        put_between_marks(path, name, _OF_NCCL[name](cells, records), check=check) for name in names
    ]
    return all(current) if current else None


def put_parity(
    folder: Path,
    cells: Sequence[Published],
    records: Sequence[Record],
    *,
    check: bool,
) -> dict[Path, bool]:
    """Put the tables of each stream, folded, into its page, and into `INDEX` the counts and what
    `put_nccl` makes.

    Args:
        folder: Has `INDEX`, and STREAM.md for every stream with a run of a cell; each with the
            marks of parity, and with those of `put_nccl` where it is shown.
        cells: Of all tables.
        records: All records.
        check: Change nothing.

    Returns:
        Of each page whether it was up to date.

    Raises:
        UserError: A stream with runs has no page, or a page lacks its marks.
    """
    by_stream: dict[str, list[Published]] = {}
    for cell in cells:
        by_stream.setdefault(cell.dataset, []).append(cell)
    compared = {stream: parities(chosen, records) for stream, chosen in by_stream.items()}
    contents = {folder / INDEX: _verdict_counts(compared, folder)}
    for stream, shown in compared.items():
        path = folder / f"{stream}.md"
        text = "\n".join(_folded(parity) for parity in shown if parity.has_runs)
        if text and not path.exists():
            marks = "<!-- parity:begin --> and <!-- parity:end -->"
            raise UserError(
                f"there are runs of {stream} but no page {path}: write one with the lines {marks}"
            )
        if path.exists():
            contents[path] = text or _NO_RUNS
    current = {
        path: put_between_marks(path, "parity", text, check=check)
        for path, text in contents.items()
    }
    for path in contents:
        if put_nccl(path, cells, records, check=check) is False:
            current[path] = False
    return current


def _folded(parity: Parity) -> str:
    """The tables folded, the verdicts below their counts, the others below how long they are."""
    verdicts, *others = map(_without_stream, parity.tables())
    parts = [
        folded_markdown(replace(verdicts, notes=verdicts.notes[1:]), verdicts.notes[0]),
        *(folded_markdown(table, _length(table)) for table in others),
    ]
    return "\n".join(parts)


def _without_stream(table: Table) -> Table:
    """The table without the column of the data set, whose page it is on."""
    at = table.names.index("data set")
    rows = tuple((*row[:at], *row[at + 1 :]) for row in table.rows)
    return replace(table, names=(*table.names[:at], *table.names[at + 1 :]), rows=rows)


def _length(table: Table) -> str:
    return f"{len(table.rows)} {'row' if len(table.rows) == 1 else 'rows'}"


def _verdict_counts(compared: Mapping[str, Sequence[Parity]], folder: Path) -> str:
    """A row for each stream of each table, and two of all: each cell, and each number once."""
    rows: list[tuple[str, ...]] = []
    every: list[Comparison] = []
    for stream, shown in compared.items():
        title = f"[{stream}]({stream}.md)" if (folder / f"{stream}.md").exists() else stream
        for parity in shown:
            name = f"{title}, {parity.table}: {CONTENTS[parity.table]}"
            rows.append((name, *_counted(parity.comparisons)))
            every += parity.comparisons
    rows.append(("all cells", *_counted(every)))
    rows.append(("all numbers, each once", *_counted(_distinct(every))))
    numbers = (*counts(()), "another protocol", "doubtful")
    return markdown_table(("stream and table", *numbers), rows, numbers)


def _counted(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Cells without doubt by verdict, those of another protocol, and the other doubtful ones."""
    sure = [c for c in comparisons if not c.cell.doubt]
    other = sum(c.cell.is_of_another_protocol for c in comparisons)
    numbers = (*counts(sure).values(), other, len(comparisons) - len(sure) - other)
    return tuple(map(str, numbers))


def _distinct(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """One of the cells that print the same number of the same settings, such as T1's of T5."""
    distinct: dict[tuple[Any, ...], Comparison] = {}
    for c in comparisons:
        key = (c.cell.settings().digest(), c.metric, c.published, bool(c.cell.doubt))
        distinct.setdefault(key, c)
    return list(distinct.values())
