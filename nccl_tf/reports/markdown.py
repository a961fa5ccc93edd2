"""Markdown: tables, and files that are made from data and checked against them."""

from collections.abc import Sequence
from pathlib import Path

from nccl_tf.errors import UserError


def table(
    names: Sequence[str], rows: Sequence[Sequence[str]], aligned_right: Sequence[str] = ()
) -> str:
    """A table, ending in a newline; a bar inside a cell is escaped.

    Args:
        names: Names of the columns.
        rows: Cells of each row.
        aligned_right: Names of the columns of numbers.
    """
    lines = ["---:" if name in aligned_right else "---" for name in names]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (names, lines, *rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


def read_text(path: Path, flag: str) -> str:
    """What a file holds.

    Raises:
        UserError: The file cannot be read; the message names the flag.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {flag}={path} ({error}): name a text file") from error


def put_text(path: Path, held: str | None, wanted: str, *, flag: str, check: bool) -> bool:
    """Write `wanted` into a file that holds something else.

    Args:
        path: The file.
        held: What it holds; None where there is no file.
        wanted: What it is to hold.
        flag: The flag that named it, for the message.
        check: Change nothing.

    Returns:
        Whether the file held `wanted` already.

    Raises:
        UserError: The file cannot be written.
    """
    if wanted != held and not check:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"cannot write {flag}={path} ({error.strerror}): name a file that can be written"
            ) from error
    return wanted == held
