"""The help of each command: its own flags, the first first; and completion by the shells."""

import shutil
import subprocess

import pytest

from nccl_tf.experiment.config.command_table import COMMANDS, named_command
from nccl_tf.experiment.config.completion import SHELLS, completion
from nccl_tf.experiment.config.flag_table import all_flags
from nccl_tf.experiment.config.help import help_text
from nccl_tf.methods.registry import METHODS


def explained(text):
    """{flag: its entry on one line}."""
    entries = text.split("\n\nAll ")[0].split("\n  --")[1:]
    return {entry.split("=")[0].split("\n")[0]: " ".join(entry.split()) for entry in entries}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_full_help_explains_every_flag_of_the_command(command):
    text = help_text(command, full=True)
    rows = command.flags()
    assert len(rows) == len({row.name for row in rows}) == len(explained(text))
    for row in rows:
        entry = explained(text)[row.name]
        assert f"default: {row.describe_default()}]" in entry
        assert not row.symbol or f"symbol {row.symbol}" in entry
        assert not row.unit or f"unit: {row.unit}" in entry
        assert not row.commands or command.name in row.commands
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_short_help_has_the_first_flags_alone(command):
    text = help_text(command)
    assert tuple(explained(text)) == command.first and len(command.first) <= 10
    assert f"python run.py {command.name} --helpfull" in text


def test_commands_have_defaults_and_flags_of_their_own():
    sweep, study, data = (
        explained(help_text(COMMANDS[name], full=True)) for name in ("sweep", "study", "data")
    )
    assert sweep["seeds"].endswith("[default: 0,1,2]")
    assert study["figure_dir"].endswith("[default: none are drawn]")
    assert not {"seeds", "overwrite"} & study.keys() and "angles" in data
    assert "more than 1 only without --distribute" in study["workers"]


def test_every_flag_is_one_of_some_command():
    read = {row.name for command in COMMANDS.values() for row in command.flags()}
    assert read == {row.name for row in all_flags()}


def test_the_help_of_all_lists_the_commands_and_the_first_flags_of_train():
    text = help_text()
    assert all(f" {command.does}\n" in text for command in COMMANDS.values())
    assert tuple(explained(text)) == COMMANDS["train"].first
    assert max(map(len, text.splitlines())) <= 80


def test_a_command_line_names_its_command():
    assert named_command(["--method=er_ring", "tables", "--help"]).name == "tables"
    assert named_command(["--help"]) is None


def completed(shell, *words):
    """What a shell puts forward for the last of these words."""
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    if shell == "zsh":  # Its own completion runs in a terminal alone: call the function.
        begin = "autoload -U +X compinit && compinit -D -u\n" + completion(shell)
    else:
        begin = completion(shell)
    array = " ".join(f"'{word}'" for word in words)
    end = f"COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _nccl_tf 2>/dev/null"
    arrays = "setopt ksh_arrays\n" if shell == "zsh" else ""
    code = f'{begin}\n{arrays}{end}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run([shell, "-c", code], capture_output=True, text=True, check=True)
    # zsh itself chooses those that begin with the word.
    return [word for word in done.stdout.split() if shell == "bash" or word.startswith(words[-1])]


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete_commands_flags_and_values(shell):
    assert completed(shell, "nccl-tf", "st") == ["study"]
    assert completed(shell, "nccl-tf", "--learning_r") == ["--learning_rate="]
    assert completed(shell, "nccl-tf", "report", "--format") == ["--format="]
    assert completed(shell, "nccl-tf", "train", "--format") == []
    # bash ends words at "=", zsh does not.
    split = ("--method", "=", "nccl_r") if shell == "bash" else ("--method=nccl_r",)
    names = sorted(name for name in METHODS if name.startswith("nccl_r"))
    prefix = "" if shell == "bash" else "--method="
    assert sorted(completed(shell, "nccl-tf", *split)) == [prefix + name for name in names]
