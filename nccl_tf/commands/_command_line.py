"""The command line: the commands by name, the flags of all, and how absl parses them, once."""

import difflib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from nccl_tf.arguments.choices import OFF, ON
from nccl_tf.arguments.parameters import METHOD, TOPICS, Setting
from nccl_tf.commands import figures, report, sweep, tables, train
from nccl_tf.commands._command import Command
from nccl_tf.commands.paper import parity_command, publish_command
from nccl_tf.errors import UserError, one_line
from nccl_tf.methods.registry import METHODS, get_method
from nccl_tf.records.options import run_flags
from nccl_tf.records.settings import hyperparameter_names, methods_with

COMMANDS = {
    module.COMMAND.name: module.COMMAND
    for module in (train, tables, figures, sweep, parity_command, report, publish_command)
}
"""Every command by its name, in the order of the help."""

_MOST = 2**31 - 1
"""The largest integer of a flag: TensorFlow counts in 32 bits."""
_MOST_MEANT = 3
"""Flags that a message names for one that is unknown."""
_SINGLE = ("text", "choice", "int", "float", "bool")
"""The kinds of a flag that takes one value."""


def all_flags() -> tuple[Setting, ...]:
    """Every flag, topic by topic as in the help.

    Raises:
        UserError: A hyperparameter of a registered method has the name of another flag.
    """
    own = {row.name: row for command in COMMANDS.values() for row in command.flags}
    rows = (*run_flags(), *own.values())
    numbers = set(hyperparameter_names())
    for row in rows:
        if row.name in numbers and row.topic != METHOD:
            raise UserError(
                f"the method {next(iter(methods_with(row.name)))} has a hyperparameter "
                f"{row.name!r}, which is the name of another flag: choose another name"
            )
    return tuple(sorted(rows, key=lambda row: TOPICS.index(row.topic)))


def rows_of(command: Command) -> tuple[Setting, ...]:
    """Every flag that the command reads, those first that matter most."""
    rows = {row.name: row for row in (*run_flags(), *command.flags)}
    for name, default in command.defaults.items():
        rows[name] = replace(rows[name], default=None, default_doc=default)
    for name, text in command.helps.items():
        rows[name] = replace(rows[name], help=text, more="")
    own = {"plugin", *(row.name for row in command.flags)}
    others = rows if command.flags_of_runs is None else own.union(command.flags_of_runs)
    return (
        *(rows[name] for name in command.first),
        *(row for name, row in rows.items() if name in others and name not in command.first),
    )


def named_command(words: list[str]) -> Command | None:
    """The command that the words of a command line name, or None."""
    return next((COMMANDS[word] for word in words if word in COMMANDS), None)


def named_method(words: list[str]) -> str | None:
    """The method of a command line that names one by `--method=NAME`, or None.

    Raises:
        UserError: There is no such method.
    """
    names = [word.partition("=")[2] for word in words if word.startswith(("--method=", "-method="))]
    return get_method(names[-1]).name if names and "," not in names[-1] else None


def _check_titles(names: str) -> None:
    """Refuse the titles of methods, which tables and legends show, with their names."""
    titles = {row.title.lower() for row in METHODS.values()}
    for name in names.split(","):
        if name not in METHODS and name.lower() in titles:
            get_method(name)


def check_flags(command: Command, flag_values: Mapping[str, Any]) -> None:
    """Check that the command reads every flag that is set.

    Raises:
        UserError: One belongs to another command, has no effect on this one, or none without
            --run_missing; or --method has the title of one in place of its name.
    """
    _check_titles(flag_values["method"] or "")
    of_commands = {row.name for other in COMMANDS.values() for row in other.flags}
    of_runs = command.flags_of_runs
    if of_runs is None:
        of_runs = flag_values.keys() - of_commands
    read = {"plugin", *command.first, *(row.name for row in command.flags), *of_runs}
    for name, value in flag_values.items():
        if value is None:
            continue
        if name in command.flags_with_run_missing and not flag_values["run_missing"]:
            raise UserError(
                f"--{name} is about the runs that --run_missing makes: give that too, or leave "
                f"--{name} out"
            )
        if name not in read:
            _refuse(name, command)


def _refuse(name: str, command: Command) -> None:
    owners = [other for other in COMMANDS.values() if name in {row.name for row in other.flags}]
    if owners:
        names = " or ".join(owner.name for owner in owners)
        advice = owners[0].advice.get(name, "leave it out")
        raise UserError(f"--{name} belongs to the command {names}: {advice}")
    raise UserError(
        f"--{name} has no effect on the command {command.name}: leave it out; "
        f"`{command.name} --helpfull` names those that have"
    )


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
            "bool": (flags.BooleanParser().parse, "true or false"),
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
    kinds = {row.name: row.kind for row in run_flags() if row.kind in _SINGLE}
    parser = _Parser(kinds[name])
    return Sweep(name, tuple(parser.parse(value) for value in values.split(",")))


class Parsed(NamedTuple):
    """A command line.

    Attributes:
        words: Those that are no flags, without the name of the program.
        values: Of all flags by name, None where not set.
        in_files: Names of the flags that flag files set, and the line itself does not.
    """

    words: list[str]
    values: dict[str, Any]
    in_files: set[str]


def parse(argv: list[str]) -> Parsed:
    """Parse a command line with the flag files that it names.

    Args:
        argv: Name of the program, then flags and words in any order.

    Raises:
        UserError: A flag is unknown or lacks its value, a value cannot be read, or a flag file
            cannot be opened.
    """
    rows = all_flags()
    names = [row.name for row in rows]
    values = _flags_of(rows)
    if any(_names_flagfile(word) and word.endswith("=") for word in argv):
        raise UserError("received --flagfile= without a name: name a file with one flag a line")
    expanded = [_of_package(word) for word in argv[1:]]
    try:
        expanded = values.read_flags_from_files(expanded)
        words = values([argv[0], *expanded])[1:]
    except UnicodeDecodeError as error:
        raise UserError(
            "--flagfile names a file that is not text: expected one flag a line, such as "
            "--method=nccl_ring"
        ) from error
    except flags.UnrecognizedFlagError as error:
        raise UserError(
            f"unknown flag --{one_line(error.flagname)}: {_meant(error.flagname, names)}"
            "--help explains flags"
        ) from error
    except (flags.Error, ValueError, RecursionError) as error:
        sentence = one_line(str(error).removeprefix("ERROR:: "))
        raise UserError(
            f"{sentence}{_of_a_sweep(expanded, rows)}; --help explains flags"
        ) from error
    on_the_line = {_flag_name(word) for word in argv[1:] if word.startswith("-")}
    by_name = {row.name: _value(row, values) for row in rows}
    given = {name for name, value in by_name.items() if value is not None}
    in_files = {name for name in given if not on_the_line & {name, f"no{name}"}}
    return Parsed(words, by_name, in_files)


def _flag_name(word: str) -> str:
    return word.lstrip("-").partition("=")[0]


def near_flags(name: str, names: Iterable[str]) -> list[str]:
    """The flags that may be meant by a name: "lr" is learning_rate, "batch" is batch_size."""
    names = list(names)
    initials = [flag for flag in names if "".join(part[0] for part in flag.split("_")) == name]
    parts = [flag for flag in names if len(name) > 2 and name in flag.split("_")]
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.7)
    return list(dict.fromkeys([*initials, *near, *parts]))[:_MOST_MEANT]


def _meant(name: str, names: Iterable[str]) -> str:
    near = near_flags(name, names)
    return f"did you mean {' or '.join(f'--{flag}' for flag in near)}? " if near else ""


def check_word(word: str, names: Iterable[str]) -> None:
    """Refuse a word that assigns a flag without its dashes, such as learning_rate=0.1.

    Raises:
        UserError: It does.
    """
    name, equals, value = word.partition("=")
    near = [flag for flag in names if flag == name] or near_flags(name, names)
    if equals and near:
        raise UserError(
            f"received the word {word}, which is no flag: did you mean --{near[0]}={value}? "
            "Flags start with --"
        )


def _of_a_sweep(words: Iterable[str], rows: Iterable[Setting]) -> str:
    """Advice where a flag of one number has a list, or a sweep is of no flag; "" elsewhere."""
    by_name = {row.name: row for row in rows}
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        row = by_name.get(name) if word.startswith("-") else None
        if row is not None and row.kind in ("int", "float") and "," in value:
            return f"; a list of them is for the command sweep, as --sweep={name}:{value}"
        swept = re.split("[:=]", value, maxsplit=1)[0]
        if row is not None and row.kind == "sweep" and swept not in by_name:
            return f"; there is no flag --{swept}: {_meant(swept, by_name)}".rstrip(" :")
    return ""


def _flags_of(rows: Iterable[Setting]) -> flags.FlagValues:
    """absl's flags of these rows, not set."""
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    for row in rows:
        if row.kind == "bool":
            flag: flags.Flag = flags.BooleanFlag(row.name, None, row.help)
            flag.parser = _Parser(row.kind)
        else:
            make = flags.MultiFlag if row.kind in ("sweep", "names") else flags.Flag
            flag = make(_Parser(row.kind), None, row.name, None, row.help)
            # A switch with a third value is a switch: --NAME is true and --noNAME is false.
            flag.boolean = {ON, OFF} <= set(row.choices)
        flags.DEFINE_flag(flag, flag_values=values)
    return values


def _value(row: Setting, values: flags.FlagValues) -> Any:
    value = values[row.name].value
    return tuple(itertools.chain(*value)) if row.kind == "names" and value else value


def parse_flag_words(words: list[str]) -> dict[str, Any]:
    """The values of the flags in these words by name, as `parse` has them.

    Raises:
        UserError: As `parse`, or a word is no flag.
    """
    parsed = parse(["", *words])
    if parsed.words:
        raise UserError(
            f"received the words {' '.join(parsed.words)}: expected flags, which start with --"
        )
    return parsed.values


def plugin_names(argv: list[str]) -> tuple[str, ...]:
    """The plugins that a command line names itself; those of flag files are not read.

    Plugins are imported before the line is parsed, because they add flags.

    Args:
        argv: Name of the program, then flags and words in any order.
    """
    found: list[str] = []
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in ("--plugin", "-plugin"):
            found += (value if equals else following).split(",")
    return tuple(filter(None, found))


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


def _names_flagfile(word: str) -> bool:
    return word.partition("=")[0] in ("--flagfile", "-flagfile")


def _of_package(word: str) -> str:
    """The word; if it names a flag file below flags/ that is not here, then with the package's."""
    name = word.partition("=")[2]
    if not _names_flagfile(word) or not name.startswith("flags/") or os.path.isfile(name):
        return word
    package = Path(__file__).parents[1]
    # In a checkout they lie beside the package, in an installed one inside of it.
    found = [place / name for place in (package, package.parent) if (place / name).is_file()]
    return f"--flagfile={found[0]}" if found else word
