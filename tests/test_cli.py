"""The command from end to end, and one sentence with exit code 2 for bad input."""

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nccl_tf
from nccl_tf.commands._help import method_help
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.record import write_record
from nccl_tf.records.settings import run_folder
from tests.experiment import sample

ROOT = Path(__file__).parents[1]


BAD_INPUT = [
    (["--method=nccl_rong"], "did you mean 'nccl_ring'"),
    (["--metodh=nccl_ring"], "did you mean --method?"),
    (["learning_rate=0.1"], "did you mean --learning_rate=0.1?"),
    (["lr=0.1"], "did you mean --learning_rate=0.1?"),
    (["--method=DER++"], "its name is 'derpp'"),
    (["--method=er_ring,NCCL + Ring"], "its name is 'nccl_ring'"),
    (["tables", "--method=DER++"], "its name is 'derpp'"),
    (["--method=derppp", "--help"], "did you mean 'derpp'"),
    (["trian"], "did you mean 'train'"),
    (["er_ring"], "run it with --method=er_ring"),
    (["train", "tables"], "one command"),
    (["--dataset=diabetes"], "numbers to predict"),
    (["--dataset=split_mini_imagenet", "--manual_dir=/nowhere"], "/nowhere"),
    (["tables", "--output_dir=/nowhere"], "no result.json"),
    (["--method=slda", "--diagnostics=subset"], "no meaning for slda: it learns without a"),
    (["sweep", "--resume=x"], "--resume belongs to the command train"),
    (["tables", "--learning_rate=0.1"], "has no effect on the command tables"),
    (["--method=multi_task", "--first_task_learning_rate=1"], "learns all tasks at once"),
]


@pytest.mark.parametrize(("argv", "said"), BAD_INPUT, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_sentence_and_exit_code_2(command, tmp_path, argv, said):
    code, _, err = command(f"--output_dir={tmp_path}", *argv)
    assert code == 2
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert said in line
    assert "Traceback" not in err


def test_an_output_folder_that_cannot_be_written(command, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = command(f"--output_dir={tmp_path / 'file'}")
    assert code == 2
    assert "choose another --output_dir" in err


def test_a_system_that_tells_no_peak_of_memory_is_told_in_one_sentence(
    command, tmp_path, monkeypatch
):
    """As Windows, whose Python has no module resource."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "resource" else find(name, *a)
    )
    code, _, err = command(f"--output_dir={tmp_path}", "--dataset=split_digits", "--max_tasks=1")
    assert code == 2 and "Traceback" not in err
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "expected Linux, macOS or WSL" in line and list(tmp_path.iterdir()) == []


def test_the_process_exits_with_2_and_prints_only_the_sentence():
    done = subprocess.run(
        [sys.executable, "run.py", "--method=nccl_rong"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown --method") and done.stderr.count("\n") == 1


def test_help_exits_with_0_and_prints_to_stdout(command):
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert "--learning_rate=X" in out


def test_the_help_of_a_method_has_its_title_its_flags_and_its_options(command):
    code, out, err = command("--method=derpp", "--help")
    assert (code, err) == (0, "")
    assert "DER++, with a memory: reservoir. Buzzega" in out
    assert {line.partition("=")[0] for line in out.splitlines() if line.startswith("  --")} == {
        "  --der_alpha", "  --der_beta", "  --batch_norm", "  --stream_mask", "  --average_weights",
        "  --alignment",
        "  --dark: it has der_alpha and der_beta, with a draw of its own for each",
        "  --replay_labels: it has der_alpha and der_beta, with a draw of its own for",
    }  # fmt: skip
    for name in METHODS:
        lines = method_help(name).splitlines()
        assert METHODS[name].title in method_help(name) and max(map(len, lines)) <= 80


def test_a_dry_run_tells_settings_folder_and_hash_and_makes_nothing(command, tmp_path):
    code, out, _ = command(
        "--dry_run", "--method=finetune,er_ring", "--seeds=0,3", "--dataset=split_digits",
        "--learning_rate=0.05", f"--output_dir={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 0 and list(tmp_path.iterdir()) == []
    runs = out.split("\n\n")
    assert len(runs) == 4
    given = {"method": "er_ring", "dataset": "split_digits", "learning_rate": 0.05}
    settings = resolve(given)
    said = dict(line.split(maxsplit=1) for line in runs[3].splitlines()[3:])
    assert said["learning_rate"] == "0.05" and said["memory_capacity"] == "50"
    assert settings.digest() in runs[3]
    assert f"{run_folder(settings, str(tmp_path / 'runs'), 3)} (not begun)" in runs[3]


@pytest.mark.parametrize("more", [(), ("--seeds=0,1",), ("--seeds=0,1", "--workers=2")])
def test_a_gpu_that_is_not_there_is_refused_before_a_folder_is_made(
    command, tmp_path, monkeypatch, more
):
    monkeypatch.setattr("nccl_tf.experiment.launch.pool.gpu_ids", tuple)
    monkeypatch.setattr("tensorflow.config.list_physical_devices", lambda *_: [])
    code, out, err = command("--device=gpu", f"--output_dir={tmp_path / 'runs'}", *more)
    assert code == 2 and "no GPU on this machine" in err and out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_choices_of_train_are_streams_of_classes(command):
    _, out, _ = command("--help")
    assert "split_digits" in out and "diabetes" not in out


def test_the_version(command):
    assert command("--version") == (0, f"nccl_tf {nccl_tf.__version__}\n", "")


def test_a_reader_may_cut_the_help_short():
    code = "python run.py --helpfull | head -1".replace("python", sys.executable)
    done = subprocess.run(code, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and done.stdout.count("\n") == 1


@pytest.mark.nightly
def test_the_default_job_for_two_tasks(command, tmp_path):
    argv = ["--max_tasks=2", f"--output_dir={tmp_path}", "--seeds=0,1", "--workers=1"]
    code, out, _ = command(*argv)
    assert code == 0
    (cell,) = (tmp_path / "permuted_digits-single" / "nccl_ring").iterdir()
    runs = []
    for seed in (0, 1):
        folder = cell / f"seed{seed}"
        assert sorted(os.listdir(folder)) == [
            "accuracy_matrix.png", "accuracy_over_time.png", "lock", "result.json", "run.json",
            "steps.csv",
        ]  # fmt: skip
        runs.append(json.loads((folder / "result.json").read_text()))
        assert str(folder / "accuracy_matrix.png") in out
    assert [run["seed"] for run in runs] == [0, 1]
    assert runs[0]["settings_hash"].startswith(cell.name)
    assert (runs[0]["num_tasks"], runs[0]["evaluated_tasks"]) == (10, 2)
    assert runs[0]["average_accuracy"] > 0.7
    assert runs[0]["train_seconds"] > 0 and runs[0]["compile_seconds"] > 0
    assert runs[0]["accuracy_matrix"][0][1] is not None
    with (cell / "seed0" / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["step"]) == runs[0]["steps"]
    assert "task 2/2: accuracy so far" in out
    assert "10 tasks: 0 held out for tuning, 10 for evaluation, the first 2 of them run" in out
    assert "2 seeds (0,1), mean ± std" in out
    _reported_and_tabulated(command, tmp_path, cell)


@pytest.mark.parametrize("more", [(), ("--overwrite",)], ids=["again", "overwrite"])
def test_a_folder_in_the_place_of_the_record(command, tmp_path, more):
    given = {"dataset": "split_digits", "max_tasks": 1, "examples_per_task": 40}
    settings = resolve({**given, "hidden": (4,)})
    (run_folder(settings, str(tmp_path), 0) / "result.json").mkdir(parents=True)
    words = [f"--{name}={value}" for name, value in given.items()]
    code, _, err = command(*words, "--hidden=4", f"--output_dir={tmp_path}", *more)
    assert code == 2 and "result.json" in err.splitlines()[-1] and "Traceback" not in err


@pytest.mark.parametrize("more", [(), ("--overwrite",)], ids=["again", "overwrite"])
@pytest.mark.parametrize("levels", [0, 1, 2])
def test_a_run_neither_writes_nor_removes_through_a_link(command, tmp_path, levels, more):
    given = {"dataset": "split_digits", "max_tasks": 1, "examples_per_task": 40}
    folder = run_folder(resolve({**given, "hidden": (4,)}), str(tmp_path / "runs"), 0)
    link = [folder, *folder.parents][levels]
    mine = tmp_path / "mine" / folder.relative_to(link)
    mine.mkdir(parents=True)
    names = ["result.json", "x.nccl_tf.tmp"] if more else ["x.nccl_tf.tmp"]
    for name in names:
        (mine / name).write_text("mine")
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "mine")
    words = [f"--{name}={value}" for name, value in given.items()]
    code, _, err = command(*words, "--hidden=4", f"--output_dir={tmp_path / 'runs'}", *more)
    assert code == 2 and f"{link} is a link" in err.splitlines()[-1]
    assert sorted(os.listdir(mine)) == names


TELL = """
import sys
from nccl_tf.cli import main
try:
    main(sys.argv)
finally:
    print("imported:", {"numpy", "tensorflow", "matplotlib"} & sys.modules.keys())
"""


def test_a_finished_run_is_told_at_once(tmp_path):
    """Without what takes longer to import than the command has to run."""
    settings = {"method": "finetune", "dataset": "split_digits", "num_tasks": 5, "max_tasks": 3}
    folder = run_folder(resolve(settings), str(tmp_path), 0)
    write_record(sample.record(**settings), folder)
    flags = [f"--{name}={value}" for name, value in settings.items()]
    argv = [sys.executable, "-c", TELL, *flags, f"--output_dir={tmp_path}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "finished already" in done.stdout and "average accuracy" in done.stdout
    assert done.stdout.endswith("imported: set()\n")


def _reported_and_tabulated(command, tmp_path, cell):
    result = cell / "seed0" / "result.json"
    written = result.stat().st_mtime_ns
    code, out, _ = command("--max_tasks=2", f"--output_dir={tmp_path}")
    assert code == 0
    assert "finished already" in out and "average accuracy" in out
    assert result.stat().st_mtime_ns == written

    code, out, _ = command("tables", f"--output_dir={tmp_path}")
    assert code == 0
    assert "\n| NCCL + Ring | 0.1 | 500 | 2 |" in out

    result.write_text("{")
    code, _, err = command("--max_tasks=2", f"--output_dir={tmp_path}")
    assert code == 2
    assert "not JSON" in err


@pytest.mark.nightly
@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(
            ["--method=nccl_reservoir", "--beta_max=0.05", "--dataset=split_digits",
             "--schedule=inverse_sqrt"], marks=pytest.mark.nightly,
        ),
        ["--method=er_reservoir", "--steps_per_execution=7", "--precision=mixed_bfloat16",
         "--epochs=2"],
    ],
    ids=lambda argv: argv[0],
)  # fmt: skip
def test_other_jobs_run(command, tmp_path, argv):
    code, out, _ = command(*argv, "--max_tasks=2", f"--output_dir={tmp_path}", "--hidden=16")
    assert code == 0
    assert "average accuracy" in out


def test_the_trained_model_is_kept_where_it_is_asked_for(command, tmp_path):
    argv = ["--dataset=split_digits", "--method=er_reservoir", "--max_tasks=2"]
    code, out, _ = command(*argv, "--save_model", f"--output_dir={tmp_path}")
    (path,) = tmp_path.rglob("model.keras")
    assert code == 0 and f"see {path}" in out
    record = json.loads((path.parent / "result.json").read_text())
    model = nccl_tf.load_model(path)
    stream = nccl_tf.load_stream("split_digits", max_tasks=2)
    assert [model.accuracy(task) for task in stream] == record["accuracy_matrix"][-1][:2]


INTERRUPTED = """
import os, signal, sys
class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, AtImport())
sys.argv = ["run.py", "tables"]
from nccl_tf.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["absl", "numpy"])
def test_ctrl_c_while_the_command_starts(name):
    """Some imports turn a KeyboardInterrupt into errors of their own."""
    code = [sys.executable, "-c", INTERRUPTED.format(name=name)]
    ended = subprocess.run(code, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "stopped by SIGINT\n")


@pytest.mark.processes
def test_a_plugin_that_raises_what_ctrl_c_raises_ends_as_it_does(tmp_path):
    (tmp_path / "plugin.py").write_text("raise KeyboardInterrupt")
    code = "from nccl_tf.__main__ import main; main()"
    argv = [sys.executable, "-c", code, "tables", f"--plugin={tmp_path / 'plugin.py'}"]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "stopped by SIGINT\n")


def test_backends_of_other_programs(command, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    code, _, err = command(f"--output_dir={tmp_path}")
    assert code == 2
    assert "KERAS_BACKEND is 'jax', expected tensorflow" in err
    code = "from nccl_tf.cli import main; main(['run.py', 'nothing'])"
    code = f"try:\n    {code}\nfinally:\n    import matplotlib; matplotlib.rcParams['backend']"
    environment = {**os.environ, "MPLBACKEND": "zzz", "KERAS_BACKEND": "tensorflow"}
    argv = [sys.executable, "-c", code]
    ended = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2 and "unknown command 'nothing'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.eager
def test_a_folder_that_is_removed_in_mid_run(command, tmp_path, monkeypatch):
    import shutil

    from nccl_tf.session.state import Checkpoints

    save = Checkpoints.on_train_batch_end
    remove = {}

    def remove_first(self, batch, logs=None):
        remove.pop("now", lambda: None)()
        save(self, batch, logs)

    def spoil():
        shutil.rmtree(tmp_path / "out")
        return True

    def block():
        (folder,) = tmp_path.rglob("tensorboard")
        shutil.rmtree(folder)
        folder.write_text("")

    monkeypatch.setattr(Checkpoints, "on_train_batch_end", remove_first)
    for act, more in ((spoil, ()), (block, ["--tensorboard", "--overwrite"])):
        remove["now"] = act
        code, _, err = command(
            "--dataset=split_digits", "--hidden=4", "--max_tasks=1", "--examples_per_task=40",
            "--steps_per_execution=1", "--record_every=2", f"--output_dir={tmp_path / 'out'}",
            *more,
        )  # fmt: skip
        assert code == 2 and "Traceback" not in err
        assert err.splitlines()[-1].startswith("error: cannot write")
