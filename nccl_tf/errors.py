"""The error that a user's input causes: one sentence with what was received and what to do."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST = 1000


class UserError(ValueError):
    """Bad input: names what was received, what was expected and what to do, in one sentence.

    The command prints it without a traceback.

    Attributes:
        exit_code: That of the command, 2.
    """

    exit_code = 2


class LearningFailedError(Exception):
    """Ten steps in a row had no finite loss and gradient.

    Attributes:
        exit_code: That of the command, 3.
    """

    exit_code = 3


def format_error(error: UserError | LearningFailedError) -> str:
    """What is printed of an error: "error: " and its sentence, cut to about 1000 characters."""
    sentence = " ".join(str(error).split())
    if len(sentence) > _LONGEST:
        half = _LONGEST // 2
        sentence = f"{sentence[:half]} [...] {sentence[-half:]}"
    # What was received is shown, but not given to the terminal to act on.
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence)
    return f"error: {shown}"


def check_name(kind: str, received: str, valid: Iterable[str]) -> str:
    """Return `received` if it is one of `valid`.

    Args:
        kind: What is named, for the message ("method", "dataset").
        received: The name that was given.
        valid: The names that exist.

    Raises:
        UserError: The name is unknown; the message suggests the nearest and lists all of them.
    """
    names = list(valid)
    if received in names:
        return received
    near = difflib.get_close_matches(str(received), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UserError(f"unknown {kind} {received!r}: {hint}choose one of {', '.join(names)}")


@contextmanager
def translate_os_error(what: str | Path, advice: str) -> Iterator[None]:
    """Turn an `OSError` of the body into one sentence.

    Args:
        what: What the body writes, for the message: a path, with the flag that named it or "into".
        advice: What to do where it cannot.

    Raises:
        UserError: The body raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {what} ({error.strerror}): {advice}") from error
