"""A table of text, its form in Markdown and LaTeX, and the numbers in its cells."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nccl_tf.records.record import Record
from nccl_tf.records.spread import spread


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
        bold: Places (row, column) of the cells that stand out in LaTeX.
    """

    name: str
    title: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bold: frozenset[tuple[int, int]] = frozenset()


def as_markdown(content: Table) -> str:
    """The table, without its title, and its notes below it."""
    notes = "".join(f"\n{note}\n" for note in content.notes)
    return markdown_table(content.names, content.rows, content.numbers) + notes


def titled_markdown(tables: Iterable[Table]) -> str:
    """The tables one below the other, each as `as_markdown` below a heading with its title."""
    return "\n".join(f"### {table.title}\n\n{as_markdown(table)}" for table in tables)


def folded_markdown(table: Table, summary: str) -> str:
    """As `as_markdown` below its title, and folded below a summary.

    The fold is HTML with Markdown inside, which GitHub and the site show as one.
    """
    return (
        f'### {table.title}\n\n<details markdown="1">\n'
        f"<summary>{html.escape(summary, quote=False)}</summary>\n\n"
        f"{as_markdown(table)}\n</details>\n"
    )


def markdown_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], aligned_right: Sequence[str] = ()
) -> str:
    """A Markdown table, ending in a newline; cells are escaped for Markdown and HTML.

    Args:
        names: Names of the columns.
        rows: Cells of each row.
        aligned_right: Names of the columns of numbers.
    """
    lines = ["---:" if name in aligned_right else "---" for name in names]
    table = [[_cell(text) for text in row] for row in (names, lines, *rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in table)


def _cell(text: str) -> str:
    """A cell of a Markdown table: no bar, no line break, and no "<" that begins a tag or a mark."""
    one_line = " ".join(text.split())
    return _TAG.sub("&lt;", one_line.replace("\\", "\\\\").replace("|", "\\|"))


_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip
_BOLD_NOTE = (
    "Bold: the best mean of the column, joint and cumulative training aside, and those within one "
    "standard error of it."
)
_MOST_LETTERS = 45
_BROKEN = r">{\raggedright\arraybackslash}p{50mm}"
_HEAD = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[landscape,margin=15mm]{geometry}
\usepackage{array,booktabs,longtable}
\begin{document}
\footnotesize
\setlength{\tabcolsep}{3pt}
"""


def as_latex(tables: Sequence[Table]) -> str:
    """A document of the tables, each a longtable with its title and notes."""
    return f"{_HEAD}{''.join(map(_longtable, tables))}\\end{{document}}\n"


DEVIATION = (
    "± is the population standard deviation over the seeds (ddof 0); of n seeds the sample one "
    "(ddof 1) is larger by the square root of n/(n - 1)."
)


def as_tabular(tables: Iterable[Table]) -> str:
    r"""Fragments for `\input`, a tabular for each table, which needs the package booktabs."""
    return "\n".join(map(_tabular, tables))


def _tabular(table: Table) -> str:
    columns = "".join("r" if name in table.numbers else "l" for name in table.names)
    lines = [
        f"% {table.title}",
        f"% {DEVIATION}",
        f"\\begin{{tabular}}{{{columns}}}",
        f"\\toprule {_row(map(escaped, table.names))} \\midrule",
        *_latex_rows(table),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_rows(table: Table) -> list[str]:
    return [
        _row([_bold(text) if (i, j) in table.bold else escaped(text) for j, text in enumerate(row)])
        for i, row in enumerate(table.rows)
    ]


def _longtable(table: Table) -> str:
    columns = "".join(_column(table, place) for place in range(len(table.names)))
    deviation = [DEVIATION] if any("±" in cell for row in table.rows for cell in row) else []
    notes = [*table.notes, *([_BOLD_NOTE] if table.bold else []), *deviation]
    lines = [
        f"\\begin{{longtable}}{{{columns}}}",
        f"\\caption{{{escaped(table.title)}}} \\\\ \\toprule",
        f"{_row(_stacked_names(table))} \\midrule \\endhead \\bottomrule \\endfoot",
        *_latex_rows(table),
        "\\end{longtable}",
        *(f"{escaped(note)}\\par" for note in notes),
    ]
    return "\n".join(lines) + "\n"


def _stacked_names(table: Table) -> Iterator[str]:
    """Names of columns; those of numbers with a word below the other, as these are narrow."""
    for name in table.names:
        text = escaped(name)
        stacks = name in table.numbers and " " in text
        lines = text.replace(" ", r" \\ ")
        yield f"\\shortstack[r]{{{lines}}}" if stacks else text


def _column(table: Table, place: int) -> str:
    """Numbers to the right; text that would run off the page breaks into lines."""
    if table.names[place] in table.numbers:
        return "r"
    longest = max((len(row[place]) for row in table.rows), default=0)
    return _BROKEN if longest > _MOST_LETTERS else "l"


def _row(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _bold(text: str) -> str:
    return f"\\textbf{{\\boldmath {escaped(text)}}}"


def escaped(text: str) -> str:
    """Text escaped for LaTeX, without Markdown's code marks."""
    return "".join(_ESCAPES.get(character, character) for character in text.replace("`", ""))


def mean_std(records: Sequence[Record], name: str, scale: float, digits: int) -> str:
    """`mean ± std` over records, without std for one; "-" where one is undefined."""
    values = [getattr(record, name) for record in records]
    if any(value is None for value in values):
        return "-"
    mean, std, size = spread([scale * value for value in values])
    return with_std(mean, None if size == 1 else std, digits)


def with_std(mean: float | None, std: float | None, digits: int) -> str:
    """`mean ± std`, or the mean alone; "-" without a mean."""
    if mean is None:
        return "-"
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def or_dash(count: int | None) -> str:
    """A number, or "-" where there is none."""
    return "-" if count is None else str(count)
