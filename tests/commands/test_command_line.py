"""Flags and help: complete, light and 80 columns wide."""

import subprocess
import sys
from pathlib import Path

import pytest

from nccl_tf.commands._command_line import near_flags, parse, plugin_names
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import leave_out, resolve


def parsed(*argv):
    return parse(["run.py", *argv])


def test_every_default_is_none_and_every_value_has_its_type():
    assert set(parsed()[1].values()) == {None}
    words, given, _ = parsed(
        "--seeds=0,1,2", "train", "--learning_rate=0.5", "--batch_size=3", "--nooverwrite"
    )
    assert words == ["train"]
    assert given["seeds"] == (0, 1, 2)
    assert given["learning_rate"] == 0.5
    assert given["batch_size"] == 3
    assert given["overwrite"] is False


@pytest.mark.parametrize(
    ("word", "value"),
    [("--jit_compile", "true"), ("--nojit_compile", "false"), ("--jit_compile=auto", "auto")],
)
def test_a_switch_with_a_third_value_is_a_switch(word, value):
    assert parsed(word, "--epochs=2")[1]["jit_compile"] == value


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--metod=x", "unknown flag --metod: did you mean --method"),
        ("--lr=0.1", "did you mean --learning_rate"),
        ("--memory_size=100", "did you mean --memory"),
        ("--learning_rate=0.1,0.2", "as --sweep=learning_rate:0.1,0.2"),
        ("--sweep=lr:0.1,0.2", "there is no flag --lr: did you mean --learning_rate"),
        ("--batch_size=ten", "expected an integer"),
        ("--learning_rate=fast", "expected a number"),
        ("--seeds=0,x", "separated by commas"),
        ("--overwrite=perhaps", "expected true or false"),
        ("--flagfile=/nowhere/x.flags", "/nowhere/x.flags"),
        ("--method", "--method"),
    ],
)
def test_what_cannot_be_read(argument, said):
    with pytest.raises(UserError, match=said):
        parsed(argument)


def test_a_flag_file_that_is_not_text(tmp_path):
    file = tmp_path / "bad.flags"
    file.write_bytes(b"\xff\xfe\x00\x9d\n")
    with pytest.raises(UserError, match="not text"):
        parsed(f"--flagfile={file}")


def test_help_imports_neither_tensorflow_nor_numpy():
    code = (
        "import sys\nfrom nccl_tf.cli import main\n"
        "try:\n    main(['run.py', '--helpfull'])\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'matplotlib'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--smoothness" in done.stdout


def test_flag_files_stand_where_they_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.flags").write_text(
        "--batch_size=1\n//no flag\n\n--flagfile=b.flags\n--epochs=2\n", encoding="utf-8"
    )
    Path("b.flags").write_text("--batch_size=2\n--epochs=3\r\n", encoding="utf-8")
    argv = ("--batch_size=9", "--flagfile", "a.flags", "train", "--epochs=5")
    words, values, in_files = parsed(*argv)
    assert (words, values["batch_size"], values["epochs"]) == (["train"], 2, 5)
    assert in_files == set()
    for words in (["--flagfile"], ["--flagfile="]):
        with pytest.raises(UserError, match="--flagfile"):
            parsed(*words)


def test_flag_files_that_name_each_other_end(tmp_path, monkeypatch):
    """A circle, and a chain of 2,000."""
    monkeypatch.chdir(tmp_path)
    Path("circle").write_text("--epochs=2\n--flagfile=circle\n", encoding="utf-8")
    assert parsed("--flagfile=circle")[1]["epochs"] == 2
    for number in range(2000):
        Path(str(number)).write_text(f"--flagfile={number + 1}\n", encoding="utf-8")
    with pytest.raises(UserError):
        parsed("--flagfile=0")


@pytest.mark.parametrize("word", ["--overwrite", "--nooverwrite", "--overwrite=true"])
def test_a_switch_on_the_line_is_not_of_a_file(tmp_path, word):
    path = tmp_path / "a.flags"
    path.write_text("--overwrite\n--epochs=2\n")
    assert parsed(f"--flagfile={path}", word).in_files == {"epochs"}
    assert parsed(f"--flagfile={path}").in_files == {"overwrite", "epochs"}


def test_plugins_are_those_of_the_line(tmp_path):
    path = tmp_path / "a.flags"
    path.write_text("--plugin=of_a_file\n")
    argv = ["run.py", f"--flagfile={path}", "--plugin=a,b.py", "train", "--plugin", "c", "--plugin"]
    assert plugin_names(argv) == ("a", "b.py", "c")


def test_flags_that_may_be_meant():
    names = ("learning_rate", "memory_size", "memory_per_class", "method", "epochs")
    assert near_flags("lr", names) == ["learning_rate"]
    assert set(near_flags("memory", names)) == {"memory_size", "memory_per_class"}
    assert near_flags("metod", names) == ["method"]
    assert near_flags("zzz", names) == []


def test_what_a_flag_file_sets_and_the_method_lacks_is_left_out(tmp_path):
    path = tmp_path / "a.flags"
    path.write_text("--memory_per_class=3\n--hidden=8\n--beta_max=0.1\n--epochs=2\n")
    _, values, in_files = parsed(f"--flagfile={path}", "--method=finetune", "--epochs=1")
    assert in_files == {"memory_per_class", "hidden", "beta_max"}
    used = leave_out(values, in_files)
    assert {name for name in values if values[name] != used[name]} == {
        "memory_per_class", "beta_max"
    }  # fmt: skip
    assert resolve(used).hidden == (8,)
    with pytest.raises(UserError, match="beta_max"):
        resolve(leave_out(values, in_files - {"beta_max"}))  # Given on the line it is refused.
    nccl = parsed(f"--flagfile={path}", "--method=nccl_ring")[1]
    assert leave_out(nccl, in_files) == nccl
