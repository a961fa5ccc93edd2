"""Text files that are made from data, and checked against them."""

from pathlib import Path

from nccl_tf.errors import UserError, writing


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
        with writing(f"{flag}={path}", "name a file that can be written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
    return wanted == held


def put_between_marks(path: Path, name: str, content: str, *, check: bool) -> bool:
    """Put text between the two marks of a name in a Markdown file.

    Args:
        path: The file.
        name: The marks are `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
        content: What is to stand there.
        check: Change nothing.

    Returns:
        Whether the file holds this already.

    Raises:
        UserError: The file cannot be read or written, or does not hold each mark once, in order.
    """
    text = read_text(path, "--readme")
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended) or text.count(begin) != 1 or text.count(end) != 1:
        raise UserError(
            f"--readme={path}: expected one line {begin} and after it one line {end}; add them "
            "where the table belongs"
        )
    wanted = f"{before}{begin}\n{content}{end}{after}"
    return put_text(path, text, wanted, flag="--readme", check=check)
