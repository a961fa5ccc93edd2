"""The commands: what each does, and which flags it reads, those first that matter most."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.flag_table import all_flags
from nccl_tf.records.options import OPTIONS
from nccl_tf.records.setting import Setting

_RECORDS = ("output_dir", "dataset", "method", "seeds")
_CHOOSES = dict.fromkeys(("dataset", "method", "seeds"), "all")
"""The defaults of a command that takes those that are asked for of what there is."""


class Command(NamedTuple):
    """A command, a module of `nccl_tf.commands` with a function `run`.

    Attributes:
        name: Its name, the word on the command line.
        usage: An example of its flags.
        does: What it does, in a few words.
        first: The flags that matter most, ten at most, in the order of the help.
        others: The flags that it reads beside these and those that are its own; None for all that
            a run has.
        defaults: In words, of flags that have another default than elsewhere.
    """

    name: str
    usage: str
    does: str
    first: tuple[str, ...]
    others: tuple[str, ...] | None = ()
    defaults: Mapping[str, str] = MappingProxyType({})

    def flags(self) -> tuple[Setting, ...]:
        """Every flag that the command reads, those first that matter most."""
        rows = {row.name: row for row in all_flags()}
        for name, default in self.defaults.items():
            rows[name] = replace(rows[name], default=None, default_doc=default)
        read = [rows[name] for name in self.first]
        for row in rows.values():
            shared = self.others is None or row.name in self.others or row.name == "plugin"
            if row.name not in self.first and (
                self.name in row.commands if row.commands else shared
            ):
                read.append(row)
        return tuple(read)


_HOW = tuple(OPTIONS)
"""How runs are made, for the commands that make those that are missing."""

_OF_MISSING = {*_HOW, "ray_address"} - {"output_dir", "seeds", "plugin"}
"""Flags that these commands read only with --run_missing."""

COMMANDS = {
    command.name: command
    for command in (
        Command(
            "train", "[--flag=value ...]", "train, task by task",
            ("method", "dataset", "seeds", "learning_rate", "memory_per_class", "max_tasks",
             "batch_size", "epochs", "output_dir", "workers"),
            None,
        ),
        Command(
            "tables", "[--output_dir=DIR]", "finished runs in Markdown", (*_RECORDS, "settings"),
            defaults=_CHOOSES,
        ),
        Command("methods", "", "methods and where they run", ()),
        Command(
            "figures", "[--figure=2]", "pictures of the paper's theory",
            ("figure", *_RECORDS, "figure_dir", "smoothness"),
            defaults=_CHOOSES,
        ),
        Command(
            "sweep", "--flagfile=FILE", "a grid, on the tuning tasks",
            ("sweep", "method", "dataset", "seeds", "memory_per_class", "max_tasks",
             "output_dir", "workers", "ray_address", "overwrite"),
            None, defaults={"seeds": "0,1,2"},
        ),
        Command(
            "parity", "[--table=T9]", "beside the paper's numbers",
            ("table", "method", "dataset", "readme", "check", "json", "strict", "run_missing",
             "seeds", "output_dir"),
            _HOW, defaults=_CHOOSES,
        ),
        Command(
            "report", "[--format=html]", "runs as one HTML page",
            ("format", "report_dir", *_RECORDS),
            defaults=_CHOOSES,
        ),
        Command(
            "publish", "[--publish_dir=DIR]", "a line a run, to keep",
            ("publish_dir", *_RECORDS, "overwrite"),
            defaults=_CHOOSES,
        ),
    )
}  # fmt: skip
"""Every command by its name."""


def named_command(words: list[str]) -> Command | None:
    """The command that the words of a command line name, or None."""
    return next((COMMANDS[word] for word in words if word in COMMANDS), None)


def check_command(command: str, flag_values: Mapping[str, Any]) -> None:
    """Check that the command reads every flag that is set.

    Raises:
        UserError: One belongs to another command, has no effect on this one, or none without
            --run_missing.
    """
    read = {row.name for row in COMMANDS[command].flags()}
    needs_run_missing = _OF_MISSING & read if "run_missing" in read else set()
    for row in all_flags():
        if flag_values[row.name] is None:
            continue
        if row.name in needs_run_missing and not flag_values["run_missing"]:
            raise UserError(
                f"--{row.name} is about the runs that --run_missing makes: give that too, or leave "
                f"--{row.name} out"
            )
        if row.name not in read:
            raise UserError(
                f"--{row.name} belongs to the command {' or '.join(row.commands)}: {row.advice}"
                if row.commands
                else f"--{row.name} has no effect on the command {command}: leave it out; "
                f"`{command} --helpfull` names those that have"
            )
