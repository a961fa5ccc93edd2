"""The help texts: flags by topic with symbol, unit and default, 80 columns wide."""

import textwrap
from collections.abc import Iterable

from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.arguments.parameters import METHOD, TOPICS, Setting
from nccl_tf.commands._command import Command
from nccl_tf.commands._command_line import COMMANDS, rows_of
from nccl_tf.methods.registry import METHODS, get_method

WIDTH = 80

_END = """
Without flags, trains nccl_ring on permuted_digits (scikit-learn's handwritten
digits) with seed 0. --flagfile=FILE reads flags from a file, one a line.
--method=nccl_ring,er_ring trains several methods and compares them.

{asks}

Of train:
"""

_ASKS = (
    ("COMMAND --help", "the command's first flags"),
    ("COMMAND --helpfull", "all its flags"),
    ("--method=NAME --help", "the flags of a method"),
    ("--version", "the version"),
)

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


def help_text(
    command: Command | None = None, *, full: bool = False, program: str = "nccl-tf"
) -> str:
    """The help of a command, or of all with the first flags of `train`; 80 columns at most.

    Args:
        command: The command; None for the list of commands.
        full: Whether all flags of the command are explained, by topic, and not the first alone.
        program: Name that the command line was called by.
    """
    shown = command or COMMANDS["train"]
    rows, count = rows_of(shown), len(shown.first)
    lines = [
        _commands(program) if command is None else f"{_usage(shown, program)}\n",
        *map(_entry, rows[:count]),
    ]
    if full:
        lines += _by_topic(rows[count:])
    elif len(rows) > count:
        lines.append(f"\nAll {len(rows)} flags: {program} {shown.name} --helpfull")
    if shown.name == "train":
        lines.append(_methods(program))
    return "\n".join(lines)


def method_help(name: str, *, program: str = "nccl-tf") -> str:
    """The help of a method: its title and source, its own flags, and what it has of the options.

    Args:
        name: In the registry.
        program: Name that the command line was called by.
    """
    method = get_method(name)
    rows = [
        Setting(
            row.name, row.kind, row.default, topic=METHOD, symbol=row.symbol, unit=row.unit,
            default_doc=row.describe_default(), help=f"{row.help}; {row.describe_range()}",
        )
        for row in method.hyperparameters
    ]  # fmt: skip
    memory = f"a memory: {method.memory}" if method.memory else "no memory"
    options = {row.name: method.option_refusal(row.name) for row in OPTIONS}
    able = [f"--{option}" for option, reason in options.items() if not reason]
    others = [f"--{option}: it {reason}" for option, reason in options.items() if reason]
    parts = [
        f"usage: {program} --method={name} [--flag=value ...]\n",
        _filled(f"{method.title}, with {memory}. {method.source}", ""),
        *(["\nIts flags:", *map(_entry, rows)] if rows else []),
        *([f"\nIts options ({program} train --helpfull):", *(_filled(x, "  ") for x in able)]
          if able else []),
        *(["\nIt refuses:", *(_filled(x, "  ") for x in others)] if others else []),
        f"\nThe flags of every method: {program} train --help",
    ]  # fmt: skip
    return "\n".join(parts)


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
    )  # fmt: skip


def _methods(program: str) -> str:
    """The table of methods."""
    lines = [
        f"  {row.name:20} {row.title:28} {row.memory or '-'}".rstrip() for row in METHODS.values()
    ]
    head = f"  {'--method':20} {'title':28} memory"
    about = f"Methods; {program} --method=NAME --help explains the flags of one:"
    return "\n".join(["", about, head, *lines])


def _commands(program: str) -> str:
    head = "Continual learning with NCCL and its relatives.\n\n"
    first, *others = COMMANDS.values()  # without a word it is the first
    lines = [_line(f"{program} [{first.name}] {first.usage}", first.does)]
    lines += [_usage(command, program) for command in others]
    asks = "\n".join(f"       {_line(f'{program} {words}', does)}" for words, does in _ASKS)
    return f"{head}usage: " + "\n       ".join(lines) + "\n" + _END.format(asks=asks)


def _usage(command: Command, program: str) -> str:
    return _line(f"{program} {command.name} {command.usage}", command.does)


def _line(words: str, does: str) -> str:
    return f"{words:42} {does}"


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
