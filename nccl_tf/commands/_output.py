"""Console messages that several commands print."""

import sys
from collections.abc import Sequence
from pathlib import Path


def say_written(path: Path, current: bool, check: bool) -> int:
    """Say whether a file that is made from data was up to date.

    Args:
        path: The file.
        current: Whether it was.
        check: Whether it was left as it is.

    Returns:
        The exit code: 1 if it was not up to date and was only checked.
    """
    if check and not current:
        print(f"{path} is not up to date: run again without --check")
        return 1
    print(f"{path}: {'is up to date' if current else 'written'}")
    return 0


def say_broken(broken: Sequence[str], whole: int) -> None:
    """Name on stderr the records that are left out.

    Args:
        broken: What is wrong with each.
        whole: Number of the others.
    """
    for sentence in broken:
        print(f"left out: {sentence}", file=sys.stderr)
    if broken:
        print(f"left out {len(broken)} broken of {whole + len(broken)}", file=sys.stderr)
