"""A table of text, which Markdown, HTML, LaTeX and CSV are made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        name: A short name, which a file can have.
        title: What it shows.
        names: Names of the columns.
        rows: Cells of each row.
        numbers: Names of the columns of numbers, which stand to the right.
        notes: Sentences below it.
    """

    name: str
    title: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
