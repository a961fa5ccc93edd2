"""Flag files: a flag a line, read in place of the --flagfile that names them, within bounds."""

import os
import reprlib
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from nccl_tf.errors import UserError
from nccl_tf.regular_files import read_regular

_MAX_FLAG_FILES = 100
_MAX_FLAG_BYTES = 2**16
"""Of a flag file, and of all that a command line reads."""
_MAX_NAME = 100
"""The longest name of a flag: looking for one that is near takes long for a long one."""


def with_flag_files(words: Iterable[str]) -> list[str]:
    """The words, with the flags of every --flagfile in its place.

    absl would do so, but waits for pipes, and follows files that name each other without end.

    Raises:
        UserError: There are more than a hundred such files, one cannot be read or all together are
            too long, or the name of a flag is.
    """
    result: list[str] = []
    waiting, left, left_bytes = deque(words), _MAX_FLAG_FILES, _MAX_FLAG_BYTES
    while waiting:
        word = waiting.popleft()
        if word == "--":
            return [*result, word, *waiting]
        if word.startswith("-") and len(word.partition("=")[0]) > _MAX_NAME:
            raise UserError(f"unknown flag {reprlib.repr(word)}: --helpfull lists every flag")
        if not names_flagfile(word) or ("=" not in word and not waiting):
            result.append(word)
            continue
        name = word.partition("=")[2] if "=" in word else waiting.popleft()
        if not left:
            raise UserError(
                f"more than {_MAX_FLAG_FILES} flag files, the last of them {reprlib.repr(name)}: "
                "expected files that do not name each other in a circle"
            )
        left -= 1
        text = _read_flag_file(name.strip(), left_bytes) if name.strip() else ""
        left_bytes -= len(text.encode())
        lines = text.split("\n")
        flags_in_file = [line for line in lines if not line.startswith(("#", "//"))]
        waiting.extendleft(line.strip() for line in reversed(flags_in_file) if line.strip())
    return result


def _read_flag_file(name: str, max_bytes: int) -> str:
    """The text of a flag file; one below flags/ that is not here is the package's."""
    package = Path(__file__).parents[2]
    # In a checkout they lie beside the package, in an installed one inside of it.
    places = (Path(), package, package.parent) if name.startswith("flags/") else (Path(),)
    paths = [place / os.path.expanduser(name) for place in places]
    path = next((path for path in paths if os.path.isfile(path)), paths[0])
    try:
        return read_regular(path, max_bytes).decode()
    except OSError as error:
        raise UserError(
            f"cannot read --flagfile={name} ({error.strerror}): name a file with one flag a line"
        ) from error


def names_flagfile(word: str) -> bool:
    """Whether a word of a command line names a flag file."""
    return word.partition("=")[0] in ("--flagfile", "-flagfile")
