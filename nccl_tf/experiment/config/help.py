"""The help texts: flags by topic with symbol, unit and default, 80 columns wide."""

import textwrap
from collections.abc import Iterable

from nccl_tf.experiment.config.command_table import COMMANDS, Command
from nccl_tf.experiment.config.setting import TOPICS, Setting

WIDTH = 80

_END = """
Without flags, trains nccl_ring on permuted_digits (scikit-learn's handwritten
digits) with seed 0. --flagfile=FILE reads flags from a file, one a line.

       python run.py COMMAND --help               the command's first flags
       python run.py COMMAND --helpfull           all its flags
       python run.py --version                    the version

Of train:
"""

_VALUES = {
    "int": "=N",
    "float": "=X",
    "ints": "=N,N,...",
    "names": "=NAME,...",
    "text": "=NAME",
    "choice": "=NAME",
    "bool": "",
    "sweep": "=FLAG:V,V,...",
}


def help_text(command: Command | None = None, *, full: bool = False) -> str:
    """The help of a command, or of all with the first flags of `train`; 80 columns at most.

    Args:
        command: The command; None for the list of commands.
        full: Whether all flags of the command are explained, by topic, and not the first alone.
    """
    shown = command or COMMANDS["train"]
    rows, count = shown.flags(), len(shown.first)
    lines = [_commands() if command is None else f"{_usage(shown)}\n", *map(_entry, rows[:count])]
    if full:
        lines += _by_topic(rows[count:])
    elif len(rows) > count:
        lines.append(f"\nAll {len(rows)} flags: python run.py {shown.name} --helpfull")
    return "\n".join(lines)


def _commands() -> str:
    head = "Continual learning with NCCL and its relatives.\n\n"
    lines = [_usage(command) for command in COMMANDS.values()]
    lines[0] = lines[0].replace("train [--flag=value ...]  ", "[train] [--flag=value ...]")
    return f"{head}usage: " + "\n       ".join(lines) + "\n" + _END


def _usage(command: Command) -> str:
    line = f"python run.py {command.name} {command.usage}"
    return f"{line:42} {command.does}"


def _by_topic(rows: Iterable[Setting]) -> list[str]:
    by_topic: dict[str, list[Setting]] = {topic: [] for topic in TOPICS}
    for row in rows:
        by_topic[row.topic].append(row)
    return [
        line
        for topic, members in by_topic.items()
        if members
        for line in (f"\n{topic}:", *map(_entry, members))
    ]


def _entry(row: Setting) -> str:
    facts = [f"symbol {row.symbol}"] if row.symbol else []
    facts += [f"unit: {row.unit}"] if row.unit else []
    facts.append(f"default: {row.describe_default()}")
    indent = " " * 6
    body = textwrap.fill(
        f"{row.describe()} [{'; '.join(facts)}]",
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return f"  --{row.name}{_VALUES[row.kind]}\n{body}"
