"""The help of each command: its own flags, the first first."""

import pytest

from nccl_tf.commands._command_line import COMMANDS, rows_of
from nccl_tf.commands._help import help_text
from nccl_tf.commands._output import program_name
from nccl_tf.methods.registry import METHODS


def explained(text):
    """{flag: its entry on one line}."""
    entries = text.split("\n\nAll ")[0].split("\n\nMethods;")[0].split("\n  --")[1:]
    return {entry.split("=")[0].split("\n")[0]: " ".join(entry.split()) for entry in entries}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_full_help_explains_every_flag_of_the_command(command):
    text = help_text(command, full=True)
    rows = rows_of(command)
    assert len(rows) == len({row.name for row in rows}) == len(explained(text))
    for row in rows:
        entry = explained(text)[row.name]
        assert f"default: {row.describe_default()}]" in entry
        assert not row.symbol or f"symbol {row.symbol}" in entry
        assert not row.unit or f"unit: {row.unit}" in entry
    assert max(map(len, text.splitlines())) <= 80


CALLED = {
    "/usr/bin/nccl-tf": "nccl-tf", "run.py": "python run.py",
    "/x/nccl_tf/__main__.py": "python -m nccl_tf",
}  # fmt: skip


@pytest.mark.parametrize("path", CALLED)
def test_the_help_of_all_lists_the_commands_and_the_first_flags_of_train(path):
    program = program_name(path)
    text = help_text(program=program)
    assert program == CALLED[path] and text.count(f" {program} ") == len(COMMANDS) + 6
    assert all(f" {command.does}\n" in text for command in COMMANDS.values())
    assert tuple(explained(text)) == COMMANDS["train"].first
    assert all(f"\n  {row.name:20} {row.title}" in text for row in METHODS.values())
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", ["tables", "figures", "parity", "report", "publish"])
def test_the_filters_of_commands_that_read_records_are_explained_as_such(name):
    entries = explained(help_text(COMMANDS[name], full=True))
    for flag in ("dataset", "method", "seeds"):
        assert " only " in entries[flag] and "[default: all]" in entries[flag]
