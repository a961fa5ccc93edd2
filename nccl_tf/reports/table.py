"""A table of text, which Markdown, HTML, LaTeX and CSV are made of."""

import csv
import io
from collections.abc import Sequence
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


_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip
_HEAD = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[landscape,margin=15mm]{geometry}
\usepackage{booktabs,longtable}
\begin{document}
\footnotesize
"""


def as_latex(tables: Sequence[Table]) -> str:
    """A document of the tables, each a longtable with its title and notes."""
    return f"{_HEAD}{''.join(map(_longtable, tables))}\\end{{document}}\n"


def _longtable(table: Table) -> str:
    columns = "".join("r" if name in table.numbers else "l" for name in table.names)
    lines = [
        f"\\begin{{longtable}}{{{columns}}}",
        f"\\caption{{{escaped(table.title)}}} \\\\ \\toprule",
        f"{_row(table.names)} \\midrule \\endhead \\bottomrule \\endfoot",
        *map(_row, table.rows),
        "\\end{longtable}",
        *(f"{escaped(note)}\\par" for note in table.notes),
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"{' & '.join(map(escaped, cells))} \\\\"


def escaped(text: str) -> str:
    """Text with what LaTeX would act on written out; the marks of Markdown's code go."""
    return "".join(_ESCAPES.get(character, character) for character in text.replace("`", ""))


def as_csv(table: Table) -> str:
    """The table as CSV, with its column names; notes are left out."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([table.names, *table.rows])
    return file.getvalue()
