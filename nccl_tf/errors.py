"""Errors that a user can act on: one sentence with what was received and what to do."""

import difflib
import importlib.util
import numbers
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_MAX_LENGTH = 1000
_MAX_NAME = 100


class UserError(ValueError):
    """Invalid input; the message says what was received, what was expected and what to do.

    The command prints the message without a traceback.

    Attributes:
        exit_code: Exit code of the command, 2.
    """

    exit_code = 2


class UnusedFlagError(UserError):
    """A flag was given that the method, network or head does not have.

    Attributes:
        flag: Its name.
    """

    def __init__(self, flag: str, message: str):
        super().__init__(message)
        self.flag = flag


class LearningFailedError(Exception):
    """Ten consecutive steps had a loss or gradient that is not finite.

    Attributes:
        exit_code: Exit code of the command, 3.
    """

    exit_code = 3


def format_error(error: UserError | LearningFailedError) -> str:
    """Format an error for the terminal: "error: " and one line."""
    return f"error: {one_line(str(error))}"


def one_line(text: str) -> str:
    """A text as one line for the terminal, of at most about 1000 characters."""
    sentence = " ".join(text.split())
    if len(sentence) > _MAX_LENGTH:
        half = _MAX_LENGTH // 2
        sentence = f"{sentence[:half]} [...] {sentence[-half:]}"
    # Control characters in the received value are escaped: a terminal would execute them.
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence)


def named_error(error: BaseException) -> str:
    """An error of somebody else's code: its class and its text, if it can tell one."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # whatever its `__str__` raises
        return name


def checked_name(kind: str, received: str, valid: Iterable[str]) -> str:
    """Return `received` if it is one of `valid`.

    Args:
        kind: What the name is of, for the message ("method", "dataset").
        received: The name to check.
        valid: The valid names.

    Raises:
        UserError: The name is unknown; the message suggests the nearest name and lists all.
    """
    names = list(valid)
    if received in names:
        return received
    if isinstance(received, str) and len(received) > _MAX_NAME:
        received = f"{received[:_MAX_NAME]}..."
    hint = "".join(f"did you mean {name!r}? " for name in near_names(received, names))
    raise UserError(f"unknown {kind} {received!r}: {hint}choose one of {', '.join(names)}")


def near_names(received: object, valid: Iterable[str]) -> list[str]:
    """The valid name that is nearest to one that is not, whatever its case, if one is near."""
    by_lower = {name.lower(): name for name in valid}
    matches = difflib.get_close_matches(str(received).lower(), by_lower, n=1)
    return [by_lower[match] for match in matches]


def checked_at_least(name: str, value: int, minimum: int) -> int:
    """Return `value` as an int if it is an integer, NumPy's too, that is not below `minimum`.

    Raises:
        UserError: It is not; the message has `name`.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < minimum:
        raise UserError(f"{name}={value!r} is out of range: expected an integer >= {minimum}")
    return int(value)


def checked_seed(seed: int) -> int:
    """Return a seed as an int if it is an integer that fits into 63 bits.

    Raises:
        UserError: It is not.
    """
    if checked_at_least("seed", seed, 0) >= 2**63:
        raise UserError(f"seed={seed!r} is out of range: expected an integer below 2**63")
    return int(seed)


def check_tensorboard(what: str, instead: str) -> None:
    """Check that the package is there which writes TensorBoard's events.

    Args:
        what: What needs it.
        instead: What to do without it.

    Raises:
        UserError: It is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            f"{what} needs the package tensorboard, which is not installed: "
            f"pip install nccl_tf[tensorboard], or {instead}"
        )


@contextmanager
def translate_os_error(what: str | Path, advice: str) -> Iterator[None]:
    """Translate an `OSError` of the body into a `UserError`.

    Args:
        what: What the body writes, for the message: a path, optionally with its flag or "into".
        advice: What the user can do about it, for the message.

    Raises:
        UserError: The body raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {what} ({error.strerror}): {advice}") from error
