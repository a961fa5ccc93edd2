"""Pages and files of the repository that are made from data, and checked against them."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nccl_tf.errors import UserError, format_error, translate_os_error
from nccl_tf.whole_files import replaced


def read_text(path: Path) -> str:
    """The content of a text file.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path} ({error}): expected a text file") from error


def put_text(path: Path, current: str | None, content: str, *, check: bool) -> bool:
    """Write `content` into a file unless it has that content.

    Args:
        path: The file.
        current: Its content now; None where the file does not exist.
        content: What it has to contain.
        check: Change nothing.

    Returns:
        Whether the file had that content already.

    Raises:
        UserError: The file cannot be written; it is as it was then.
    """
    if content != current and not check:
        with translate_os_error(str(path), "let it be written, and run again"):
            target = path.resolve()  # Of a link: the file is the reader's own.
            target.parent.mkdir(parents=True, exist_ok=True)
            with replaced(target) as temporary:
                temporary.write_text(content, encoding="utf-8")
    return content == current


def put_between_marks(path: Path, name: str, content: str, *, check: bool) -> bool:
    """Put text between the two marks of a name in a Markdown file.

    Args:
        path: The file.
        name: The marks are `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
        content: The text between them.
        check: Change nothing.

    Returns:
        Whether the file had this text already.

    Raises:
        UserError: The file cannot be read or written, or does not have each mark once, in order.
    """
    text = read_text(path)
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, begin_mark, rest = text.partition(begin)
    _, end_mark, after = rest.partition(end)
    if not (begin_mark and end_mark) or text.count(begin) != 1 or text.count(end) != 1:
        raise UserError(
            f"{path}: expected one line {begin} and after it one line {end}; add them "
            "where the table belongs"
        )
    if begin in content or end in content:
        raise UserError(f"the text for {path} holds the mark {begin} or {end} itself")
    page = f"{before}{begin}\n{content}{end}{after}"
    return put_text(path, text, page, check=check)


def print_file_status(path: Path, current: bool, check: bool) -> int:
    """Print whether a file that is made from data was up to date.

    Args:
        path: The file.
        current: Whether it was.
        check: Whether it was only compared, and not written.

    Returns:
        The exit code: 1 if it was not up to date and was only checked.
    """
    if check and not current:
        print(f"{path} is not up to date: run again without --check")
        return 1
    print(f"{path}: {'is up to date' if current else 'written'}")
    return 0


def make_part(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    path: Path,
    name: str,
    content: Callable[[argparse.Namespace], str],
) -> int:
    """Run a command that makes the text between two marks of a page, or compares it (`--check`).

    Args:
        parser: Of its other arguments.
        argv: The command line; None for that of the process.
        path, name: As for `put_between_marks`.
        content: Makes the text from what was asked for.

    Returns:
        The exit code.
    """
    parser.add_argument("--check", action="store_true", help="change nothing, and say what would")
    asked = parser.parse_args(argv)
    try:
        current = put_between_marks(path, name, content(asked), check=asked.check)
    except UserError as error:
        print(format_error(error), file=sys.stderr)
        return error.exit_code
    return print_file_status(path, current, asked.check)
