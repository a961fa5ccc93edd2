"""The commands by name, and the flags of all of them."""

from collections.abc import Mapping
from typing import Any

from nccl_tf.commands import figures, parity, publish, report, sweep, tables, train
from nccl_tf.commands._command import Command
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.run_flags import hyperparameter_names, methods_with, run_flags
from nccl_tf.methods.registry import METHODS, get_method
from nccl_tf.records.setting import METHOD, TOPICS, Setting

COMMANDS = {
    module.COMMAND.name: module.COMMAND
    for module in (train, tables, figures, sweep, parity, report, publish)
}
"""Every command by its name, in the order of the help."""


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
    read = {row.name for row in command.rows()}
    for name, value in flag_values.items():
        if value is None:
            continue
        if name in command.only_missing and not flag_values["run_missing"]:
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
