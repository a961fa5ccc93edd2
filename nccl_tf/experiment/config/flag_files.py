"""Flag files: a flag a line, read in place of the --flagfile that names them."""

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from nccl_tf.errors import UserError

_MOST = 100
"""Flag files of a command line: more name each other in a circle."""


def with_flag_files(words: Iterable[str]) -> list[str]:
    """The words, with the flags of every --flagfile in its place.

    absl would do so, but does not know the files of the package.

    Raises:
        UserError: There are more than a hundred such files, or one has no name or cannot be read.
    """
    result: list[str] = []
    waiting, count = deque(words), 0
    while waiting:
        word = waiting.popleft()
        if word == "--":
            return [*result, word, *waiting]
        if not names_flagfile(word) or ("=" not in word and not waiting):
            result.append(word)
            continue
        name = (word.partition("=")[2] if "=" in word else waiting.popleft()).strip()
        count += 1
        if count > _MOST:
            raise UserError(
                f"more than {_MOST} flag files, the last of them {name}: expected files that do "
                "not name each other in a circle"
            )
        if not name:
            raise UserError("received --flagfile= without a name: name a file with one flag a line")
        lines = [line.strip() for line in _read_flag_file(name).split("\n")]
        waiting.extendleft(reversed([x for x in lines if x and not x.startswith(("#", "//"))]))
    return result


def _read_flag_file(name: str) -> str:
    """The text of a flag file; one below flags/ that is not here is the package's."""
    package = Path(__file__).parents[2]
    # In a checkout they lie beside the package, in an installed one inside of it.
    places = (Path(), package, package.parent) if name.startswith("flags/") else (Path(),)
    paths = [place / os.path.expanduser(name) for place in places]
    try:
        return next((path for path in paths if os.path.isfile(path)), paths[0]).read_text()
    except OSError as error:
        raise UserError(
            f"cannot read --flagfile={name} ({error.strerror}): name a file with one flag a line"
        ) from error


def names_flagfile(word: str) -> bool:
    """Whether a word of a command line names a flag file."""
    return word.partition("=")[0] in ("--flagfile", "-flagfile")
