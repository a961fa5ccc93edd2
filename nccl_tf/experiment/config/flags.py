"""The flags on absl: defined from the rows, parsed with errors in one sentence, values by name."""

import difflib
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from absl import flags

from nccl_tf.errors import UserError, one_line
from nccl_tf.experiment.config.flag_files import names_flagfile, with_flag_files
from nccl_tf.experiment.config.flag_table import all_flags
from nccl_tf.records.options import OPTIONS
from nccl_tf.records.setting import Setting

_MOST = 2**31 - 1
"""The largest integer of a flag: TensorFlow counts in 32 bits."""


_SINGLE = ("text", "choice", "int", "float", "bool")
"""The kinds of a flag that takes one value."""


class Sweep(NamedTuple):
    """Values that a sweep tries of one flag.

    Attributes:
        name: Name of the flag.
        values: As the flag would hold them.
    """

    name: str
    values: tuple[Any, ...]


class _Parser(flags.ArgumentParser):
    """Reads one kind of value; the error says what was expected."""

    def __init__(self, kind: str) -> None:
        readers: dict[str, tuple[Callable[[Any], Any], str]] = {
            "int": (_read_int, f"an integer of at most {_MOST}"),
            "float": (float, "a number"),
            "ints": (
                _read_ints,
                f"integers of at most {_MOST} separated by commas, such as 0,1,2",
            ),
            "text": (_read_text, "text without the character NUL"),
            "choice": (_read_text, "text without the character NUL"),
            "names": (_read_names, "names separated by commas"),
            "sweep": (
                read_sweep,
                "a flag that takes one value and values for it, such as learning_rate:0.01,0.1",
            ),
        }
        self._read, self._expected = readers[kind]
        self.syntactic_help = self._expected

    def parse(self, argument: Any) -> Any:
        """Return the value.

        Raises:
            ValueError: The argument cannot be read; the message is the end of a sentence.
        """
        try:
            return self._read(argument)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"expected {self._expected}") from error


class _BooleanParser(flags.BooleanParser):
    def parse(self, argument: Any) -> bool:
        try:
            return super().parse(argument)
        except (TypeError, ValueError) as error:
            raise ValueError("expected true or false") from error


def _read_int(argument: Any) -> int:
    value = int(argument)
    if abs(value) > _MOST:
        raise ValueError
    return value


def _read_ints(argument: Any) -> tuple[int, ...]:
    parts = argument.split(",") if isinstance(argument, str) else argument
    return tuple(_read_int(part) for part in parts)


def _read_names(argument: str) -> tuple[str, ...]:
    names = tuple(_read_text(argument).split(","))
    if not all(names):
        raise ValueError
    return names


def _read_text(argument: str) -> str:
    if "\0" in argument:
        raise ValueError
    return argument


def read_sweep(argument: str) -> Sweep:
    """A sweep from "name:value,value,..." or "name=value,value,...".

    Raises:
        ValueError: No such flag, none that takes a single value, or values it cannot read.
    """
    name, values = re.split("[:=]", argument, maxsplit=1)
    kinds = {row.name: row.kind for row in all_flags() if row.kind in _SINGLE}
    parser = _BooleanParser() if kinds[name] == "bool" else _Parser(kinds[name])
    return Sweep(name, tuple(parser.parse(value) for value in values.split(",")))


def define_flags(values: flags.FlagValues) -> None:
    """Define every row on `values`; rows that are there already stay."""
    for row in all_flags():
        if row.name not in values:
            _define(row, values)


def _define(row: Setting, values: flags.FlagValues) -> None:
    help_text = f"{row.describe()} (default: {row.describe_default()})"
    if row.kind == "bool":
        flag: flags.Flag = flags.BooleanFlag(row.name, None, help_text)
        flag.parser = _BooleanParser()
    else:
        make = flags.MultiFlag if row.kind in ("sweep", "names") else flags.Flag
        flag = make(_Parser(row.kind), None, row.name, None, help_text)
    flags.DEFINE_flag(flag, flag_values=values)


def read_flag_values(values: flags.FlagValues) -> dict[str, Any]:
    """The parsed values by name; None where a flag is not set."""
    return {row.name: _value(row, values) for row in all_flags()}


def _value(row: Setting, values: flags.FlagValues) -> Any:
    value = values[row.name].value
    return tuple(itertools.chain(*value)) if row.kind == "names" and value else value


def parse_flag_words(words: list[str]) -> dict[str, Any]:
    """The values of the flags in these words by name, as `read_flag_values` has them.

    Raises:
        UserError: As `parse_flags`, or a word is no flag.
    """
    values = flags.FlagValues()
    define_flags(values)
    rest = parse_flags(values, ["run.py", *words])
    if rest:
        raise UserError(f"received the words {' '.join(rest)}: expected flags, which start with --")
    return read_flag_values(values)


def plugin_names(argv: list[str]) -> tuple[str, ...]:
    """The plugins that a command line names itself; those of flag files are not read.

    Args:
        argv: Name of the program, then flags and words in any order.
    """
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    _define(OPTIONS["plugin"], values)
    try:
        values([word for word in argv if not names_flagfile(word)], known_only=True)
    except flags.Error:
        return ()  # `parse_flags` says what is wrong.
    return _value(OPTIONS["plugin"], values) or ()


def set_in_files(argv: list[str], flag_values: Mapping[str, Any]) -> set[str]:
    """The names of the flags that flag files set, and the command line itself does not.

    Args:
        argv: Name of the program, then flags and words in any order.
        flag_values: Values of all flags by name.
    """
    values = flags.FlagValues()
    define_flags(values)
    parse_flags(values, [word for word in argv if not names_flagfile(word)])
    on_the_line = read_flag_values(values)
    return {name for name, v in flag_values.items() if v is not None and on_the_line[name] is None}


def check_plugin_flags(flag_values: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Check that no flag file names a plugin.

    Args:
        flag_values: Flag values by name.
        names: The plugins that the command line names itself.

    Raises:
        UserError: One does.
    """
    in_files = [name for name in flag_values["plugin"] or () if name not in names]
    if in_files:
        raise UserError(
            f"--plugin={','.join(in_files)} stands in a flag file: expected it on the command "
            "line itself, so that no file that is read decides which code is run"
        )


def as_arguments(flag_values: Mapping[str, Any]) -> list[str]:
    """Values by name as a command line would give them; None is left out."""
    return [
        f"--{name}={_as_text(value)}" for name, value in flag_values.items() if value is not None
    ]


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_flags(values: flags.FlagValues, argv: list[str]) -> list[str]:
    """Parse a command line, with `--flagfile`s, into `values`.

    Args:
        values: Where the flags are defined.
        argv: Name of the program, then flags and words in any order.

    Returns:
        The words that are no flags, without the name of the program.

    Raises:
        UserError: A flag is unknown or lacks its value, a value cannot be read, or a flag file
            cannot be opened.
    """
    values.set_gnu_getopt(True)
    try:
        return values([argv[0], *with_flag_files(argv[1:])])[1:]
    except flags.UnrecognizedFlagError as error:
        near = _nearest(error.flagname)
        hint = f"did you mean --{near}? " if near else ""
        raise UserError(
            f"unknown flag --{error.flagname}: {hint}--helpfull lists every flag"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            "--flagfile names a file that is not text: expected one flag a line, such as "
            "--method=nccl_ring"
        ) from error
    except UserError:
        raise
    except (flags.Error, ValueError) as error:
        sentence = one_line(str(error).removeprefix("ERROR:: "))
        raise UserError(f"{sentence}; --help explains flags") from error


def _nearest(name: str) -> str | None:
    """The flag that is meant by a name that is none: nearly its name, its initials or a part."""
    names = [row.name for row in all_flags()]
    initials = [known for known in names if "".join(p[0] for p in known.split("_")) == name]
    parts = [known for known in names if len(name) > 2 and name in known]
    near = [*difflib.get_close_matches(name, names, n=1), *initials, *parts]
    return near[0] if near else None
