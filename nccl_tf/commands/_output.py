"""Console messages that several commands print."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.errors import one_line

_MOST_SHOWN = 20


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


def warn_left_out(given: Mapping[str, Any], used: Mapping[str, Any], of: str) -> None:
    """Name on stderr the flags that are given and not used.

    Args:
        given: Flag values by name.
        used: Those that are used, None for what is left out.
        of: What they are left out of, in words.
    """
    left = [f"--{name}" for name, v in given.items() if v is not None and used[name] is None]
    if left:
        print(f"left out {of}: {', '.join(left)}", file=sys.stderr)


def warn_skipped_records(broken: Sequence[str], whole: int) -> None:
    """Warn on stderr of records that are skipped because they are broken.

    Args:
        broken: What is wrong with each, a sentence.
        whole: Number of records that are not broken.
    """
    for sentence in broken[:_MOST_SHOWN]:
        print(f"left out: {one_line(sentence)}", file=sys.stderr)
    if len(broken) > _MOST_SHOWN:
        print(f"left out: {len(broken) - _MOST_SHOWN} more", file=sys.stderr)
    if broken:
        print(f"left out {len(broken)} broken of {whole + len(broken)}", file=sys.stderr)
