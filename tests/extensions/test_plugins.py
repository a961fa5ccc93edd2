"""Plugins: methods of modules that the command line names, in runs, sweeps and reports."""

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.experiment.launch import pool
from nccl_tf.experiment.run.train import Run
from nccl_tf.extensions import plugins
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.options import resolve_options

PLUGIN = '''
import keras
import nccl_tf

print("imported")

@keras.saving.register_keras_serializable(package="tests")
class Scaled(nccl_tf.Finetune):
    """Fine-tuning with a number that it keeps.

    Example:
        >>> learner = Scaled(nccl_tf.networks.mlp((8, 8, 1), 10), rate_scale=0.25)
    """

    def __init__(self, *args, rate_scale=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.rate_scale = rate_scale

nccl_tf.register_method(nccl_tf.Method(
    name="scaled", title="Scaled method", learner=Scaled,
    hyperparameters=(nccl_tf.Hyperparameter("rate_scale", "float", 0.5, ge=0.0, help="scale"),),
))
'''
TINY = (
    "--dataset=split_digits", "--max_tasks=1", "--examples_per_task=20", "--hidden=4",
    "--progress=none",
)  # fmt: skip


@pytest.fixture(autouse=True)
def fresh_process(restored_tables):
    """Makes it as if the process had just begun, with no plugin imported."""

    def forget():
        METHODS.pop("scaled", None)
        plugins._hashes.clear()

    return forget


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_plugin.py"
    path.write_text(PLUGIN)
    # Before the folders of other tests, which plugins have added.
    monkeypatch.syspath_prepend(tmp_path)
    return path


def result(folder):
    (path,) = folder.rglob("result.json")
    return json.loads(path.read_text()), path


def test_a_run_by_name_notes_the_plugin_and_is_reported(plugin, command):
    flags = (f"--plugin={plugin}", "--output_dir=out")
    code, _, said = command("--method=scaled", *flags, *TINY, "--rate_scale=0.25")
    assert (code, said) == (0, "")
    record, path = result(Path("out"))
    hashes = plugins.plugin_hashes([str(plugin)])
    assert record["options"]["plugins"] == hashes
    assert json.loads((path.parent / "run.json").read_text())["plugins"] == hashes
    assert record["settings"]["hyperparameters"] == {"rate_scale": 0.25}
    assert "Scaled method" in command("tables", *flags)[1]
    assert command("report", *flags, "--report_dir=report")[0] == 0
    assert "Scaled method" in Path("report/report.html").read_text(encoding="utf-8")
    text = " ".join(command("--helpfull", f"--plugin={plugin}")[1].split())
    assert "--rate_scale" in text and "; of scaled [" in text


def test_the_class_of_a_plugin_does_what_every_learner_must(plugin):
    """All that makes it anew; its steps are those of fine-tuning, which has them checked."""
    plugins.load_plugins([str(plugin)])
    items = ["docstring", "arguments", "config", "file", "add_classes", "heads", "serving_model"]
    scaled = METHODS["scaled"].learner_class()
    assert not nccl_tf.check_learner(scaled, arguments={"rate_scale": 0.25}, items=items).failed


def test_reports_without_the_plugin_leave_its_records_out(plugin, command, fresh_process):
    command("--method=scaled", f"--plugin={plugin}", "--output_dir=out", *TINY)
    command("--method=finetune", "--output_dir=out", *TINY)
    fresh_process()
    code, table, said = command("tables", "--output_dir=out")
    assert code == 0 and "Fine-tune" in table and "Scaled" not in table
    assert "unknown method 'scaled'" in said and "left out 1 of 2" in said
    assert command("tables", "--output_dir=out")[1].count("imported") == 0


def test_a_changed_plugin_is_refused_until_overwritten(plugin, command, fresh_process):
    flags = ("--method=scaled", f"--plugin={plugin}", "--output_dir=out", *TINY)
    assert command(*flags)[0] == 0
    seed = result(Path("out"))[1].parent
    fresh_process()
    plugin.write_text(PLUGIN + "# changed\n")
    for resumed in ((), (f"--resume={seed}",)):
        code, _, said = command(*flags, *resumed)
        assert code == 2 and said.count("\n") == 1
        assert "begun with the plugin" in said and "--overwrite" in said
    assert command(*flags, "--overwrite")[0] == 0


def test_what_a_run_folder_names_is_not_imported(plugin, command, fresh_process, monkeypatch):
    command("--method=scaled", f"--plugin={plugin}", "--output_dir=out", *TINY)
    seed = result(Path("out"))[1].parent
    fresh_process()
    monkeypatch.setattr(plugins, "_import_file", None)
    code, _, said = command(f"--resume={seed}", *TINY)
    assert code == 2 and "this command has no plugin" in said


def test_a_flag_file_may_not_name_a_plugin(plugin, command, tmp_path):
    (tmp_path / "some.flags").write_text(f"--plugin={plugin}\n")
    code, out, said = command("tables", "--flagfile=some.flags")
    assert code == 2 and "stands in a flag file" in said and "imported" not in out


@pytest.mark.parametrize("target", [None, "/dev/zero"])
def test_a_plugin_that_has_no_end_is_refused_and_not_waited_for(tmp_path, command, target):
    path = tmp_path / "endless.py"
    path.symlink_to(target) if target else os.mkfifo(path)
    code, _, printed = command("tables", f"--plugin={path}")
    assert code == 2 and f"cannot import the plugin {path} (OSError" in printed


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("def", "SyntaxError"),
        ("raise SystemExit(7)", "SystemExit"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("class Mute(Exception):\n    def __str__(self):\n        1 / 0\nraise Mute", "Mute)"),
        (None, "FileNotFoundError"),
    ],
)
def test_a_plugin_that_cannot_be_imported(tmp_path, command, source, said):
    path = tmp_path / "bad.py"
    if source is not None:
        path.write_text(source)
    code, _, printed = command("tables", f"--plugin={path}")
    assert code == 2 and printed.count("\n") == 1
    assert printed.startswith(f"error: cannot import the plugin {path} ({said}")


def test_a_module_is_found_in_the_working_directory(plugin, command):
    code, out, _ = command("--helpfull", "--plugin", "my_plugin")
    assert code == 0 and "--rate_scale" in out
    assert command("tables", "--plugin=no.such.module")[0] == 2
    del sys.modules["my_plugin"]


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("as_module", [False, True], ids=["file", "module"])
def test_the_hash_is_of_the_source_that_ran(as_module, plugin, monkeypatch, fresh_process):
    """Also where the file changes as it runs, or keeps size and time, as bytecode has them."""
    name = "my_plugin" if as_module else str(plugin)
    itself = f"import pathlib\npathlib.Path({str(plugin)!r}).write_text('changed')\n"
    plugin.write_text(itself + "RAN = 1\n")
    ran = sha256(plugin)
    try:
        plugins.load_plugins([name])
        assert plugins.plugin_hashes([name]) == {name: ran} and plugin.read_text() == "changed"
        for source in ("RAN = 1", "RAN = 2"):
            fresh_process()
            sys.modules.pop("my_plugin", None)
            plugin.write_text(source)
            os.utime(plugin, (1e9, 1e9))
            with monkeypatch.context() as patch:
                patch.setattr(sys, "dont_write_bytecode", False)
                plugins.load_plugins([name])
            module = sys.modules[name if as_module else "nccl_tf_plugin_my_plugin"]
            assert f"RAN = {module.RAN}" == source
            assert plugins.plugin_hashes([name]) == {name: sha256(plugin)}
    finally:
        sys.modules.pop("my_plugin", None)


def test_a_plugin_that_another_one_imports_is_hashed_as_it_ran(plugin, tmp_path):
    (tmp_path / "other.py").write_text("import my_plugin\n")
    names = ["other.py", "my_plugin"]
    try:
        with pytest.raises(UserError, match="imported before --plugin"):
            plugins.load_plugins(["my_plugin", "json"])
        del sys.modules["my_plugin"]
        plugins._hashes.clear()
        METHODS.pop("scaled")
        plugins.load_plugins(names)
        assert plugins.plugin_hashes(names)["my_plugin"] == sha256(plugin)
    finally:
        sys.modules.pop("my_plugin", None)


@pytest.mark.nightly
def test_a_sweep_over_the_numbers_of_a_plugin(plugin, command):
    code, out, said = command(
        "sweep", "--method=scaled", f"--plugin={plugin}", "--sweep=rate_scale:0.5,2",
        "--seeds=0", "--workers=1", "--output_dir=out", *TINY,
    )  # fmt: skip
    assert (code, said) == (0, "")
    assert "2 points x 1 seed:" in out
    (winner,) = Path("out").rglob("winner*.flags")
    assert f"# Give --plugin={plugin} with it." in winner.read_text()
    assert "--rate_scale" in winner.read_text() and "\n--plugin" not in winner.read_text()


def test_a_plugin_that_changes_among_runs_is_told(plugin, monkeypatch):
    plugins.load_plugins([str(plugin)])
    flags = {"method": "scaled", "plugin": (str(plugin),), "dataset": "split_digits"}
    flags["output_dir"] = "out"
    run = Run.from_flags(flags, resolve_options(flags), 0)

    def begin_with_another_source(*_):
        run.folder.mkdir(parents=True)
        (run.folder / "run.json").write_text(json.dumps({"plugins": {"my_plugin.py": "0" * 64}}))
        return {}

    monkeypatch.setattr(pool, "run_locally", begin_with_another_source)
    with pytest.raises(UserError, match=r"begun with the plugin my_plugin\.py \(00000000\)"):
        pool.finish([run], {"workers": 1, "ray_address": None}, print)
