"""Sweeps: the grid, its trials as processes, their ranking and the winner's flagfile."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from nccl_tf.commands._command_line import (
    parse_flag_words,
)
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.launch.pool import run_locally
from nccl_tf.experiment.launch.sweep import (
    grid_points,
    rank,
    winner_file,
)
from nccl_tf.experiment.launch.worker import LOG
from nccl_tf.experiment.run.run_file import write_run_file
from nccl_tf.records.new_record import make_record
from nccl_tf.records.options import resolve_options
from nccl_tf.records.record import FILE_NAME, read_record, write_record
from tests.experiment import sample

ROOT = Path(__file__).parents[3]
SMALL = (
    "--method=er_ring", "--dataset=split_digits", "--head=single", "--hidden=8", "--max_tasks=2",
)  # fmt: skip


def parsed(*argv):
    return parse_flag_words([str(word) for word in argv])


def grid(*argv, output_dir="runs", seeds="0,1"):
    given = parsed(*argv, f"--output_dir={output_dir}", f"--seeds={seeds}")
    return grid_points(given, resolve_options(given))


def test_diagnostics_of_several_devices_are_refused():
    argv = ["--method=er_ring", "--distribute=mirrored", "--diagnostics=subset"]
    with pytest.raises(UserError, match="diagnostics look at one device"):
        grid(*argv, "--sweep=learning_rate:0.1,0.3")


def test_the_grid_is_every_combination_on_tuning_tasks():
    found = grid(*SMALL, "--sweep=learning_rate=0.1,0.3", "--sweep=batch_size:5,10")
    assert [tuple(trial.values.values()) for trial in found] == list(
        itertools.product((0.1, 0.3), (5, 10))
    )
    for trial in found:
        assert [run.seed for run in trial.runs] == [0, 1]
        settings = trial.runs[0].settings
        assert settings.tasks == "tuning"
        assert (settings.learning_rate, settings.batch_size) == tuple(trial.values.values())
        assert trial.runs[0].folder.parts[:2] == ("runs", "sweep")


@pytest.mark.parametrize(("rate", "smoothness"), [(0.3, 1.0), (1.0, 0.9), (3.0, 0.3)])
def test_nccl_lowers_its_smoothness_where_alpha_is_large(rate, smoothness):
    (trial,) = grid("--method=nccl_ring", f"--sweep=learning_rate:{rate}")
    settings = trial.runs[0].settings
    assert settings.hyperparameters["smoothness"] == pytest.approx(smoothness)
    assert resolve(trial.flags).hyperparameters["smoothness"] == pytest.approx(smoothness)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "received 0 grids"),
        (["--sweep=delta:0.1", "--sweep=delta:0.2"], "expected each flag once"),
        (["--sweep=learning_rate:0.1,0.10"], "learning_rate 0.1 is the same run as"),
        (["--sweep=output_dir:a,b"], "is the same run as"),
        (["--sweep=delta:0.1,2"], "--delta=2.0 is out of range"),
        (["--sweep=delta:0.1", "--tasks=tuning"], "leave it out"),
    ],
)
def test_what_is_no_grid(argv, said):
    with pytest.raises(UserError, match=said):
        grid(*argv)


def finished(trial, accuracies):
    for run, accuracy in zip(trial.runs, accuracies, strict=True):
        made = make_record(
            run.settings, run.options, run.seed, matrix=sample.np.full((2, 2), accuracy),
            initial=sample.np.zeros(2), measured=sample.MEASURED,
        )  # fmt: skip
        write_run_file(run.folder, run.settings, run.seed, run.flag_values)
        write_record(made, run.folder)


def test_ranking_is_by_mean_then_spread_then_failure(tmp_path):
    found = grid(*SMALL, "--sweep=learning_rate:0.1,0.2,0.3,0.4", output_dir=tmp_path)
    for trial, accuracies in zip(found, [(0.5, 0.9), (0.8, 0.8), (0.7, 0.7), (1, 1)], strict=True):
        finished(trial, accuracies)
    ranking = rank(found, {found[3].runs[1].folder: "failed, it diverged"})
    assert [r.point.values["learning_rate"] for r in ranking] == [0.2, 0.3, 0.1, 0.4]
    assert [r.problem for r in ranking] == ["", "", "", "failed, it diverged"]

    file = tmp_path / "winner.flags"
    file.write_text(winner_file(ranking[0], 3))
    assert "accuracy 80.00 +- 0.00 % over 2 seeds" in file.read_text()
    expected = resolve({**parsed(*SMALL), "learning_rate": 0.2, "max_tasks": None})
    assert resolve(parsed(f"--flagfile={file}")) == expected
    assert expected.max_tasks == 5


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        (["--tuning_tasks=3"], "on the first 2 of the 3 tuning tasks of"),
        (["--tuning_tasks=2"], "on the 2 tuning tasks of"),
        ([], "on held-out images of the first 2 of the 5 tasks of"),
    ],
)
def test_a_winner_says_on_what_it_won_and_is_trained_on_all_tasks(tmp_path, flags, where):
    found = grid(*SMALL, *flags, "--sweep=learning_rate:0.1", output_dir=tmp_path, seeds="0")
    finished(found[0], [0.8])
    text = winner_file(*rank(found, {}), 0)
    assert where in text and "accuracy 80.00 % with one seed" in text
    assert "max_tasks" not in text


def test_each_winner_is_the_best_of_all_that_was_tried(tmp_path, command):
    """Of the same flags with all else equal; grids of anything else have files of their own."""

    def sweep(values, accuracies, *more, name="memory", seeds="0"):
        argv = (*SMALL, f"--sweep={name}:{values}", *more)
        for point, accuracy in zip(
            grid(*argv, output_dir=tmp_path, seeds=seeds), accuracies, strict=True
        ):
            finished(point, [accuracy] * len(seeds.split(",")))
        code, out, err = command("sweep", *argv, f"--output_dir={tmp_path}", f"--seeds={seeds}")
        assert code == 0, err
        seen, last = out.splitlines()[-2:]
        path = Path(seen.removeprefix("see "))
        assert last.startswith("to train the winner: ") and last.endswith(f" --flagfile={path}")
        return path, path.read_text(encoding="utf-8"), out

    first, text, _ = sweep("40,60", (0.87, 0.5))
    assert "--memory=40" in text and "best of 2 points" in text
    again, text, out = sweep("80,100", (0.11, 0.12))
    assert again == first and "--memory=40" in text and "best of 4 points" in text
    assert "87.00" in text and "| 4 | 80" in out
    again, text, _ = sweep("120", (0.9,), "--seeds=0")
    assert again == first and "--memory=120" in text
    others = [
        sweep("40", (0.3,), "--learning_rate=0.5"),
        sweep("0.1,0.2", (0.3, 0.2), "--memory=50", name="learning_rate"),
        sweep("40", (0.3,), seeds="1,2"),
    ]
    assert all("accuracy 30.00" in text for _, text, _ in others)
    assert len({first, *(path for path, _, _ in others)}) == 4
    assert first.read_text() == text


def started(*argv, **more):
    return subprocess.Popen(
        [sys.executable, "run.py", *map(str, argv)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


@pytest.mark.processes
def test_a_sweep_from_end_to_end_and_again(tmp_path, command):
    argv = ["sweep", *SMALL, "--sweep=learning_rate:0.1,1e30", "--seeds=0", "--workers=1"]
    code, out, err = command(*argv, f"--output_dir={tmp_path}")
    assert code == 0, err
    assert "2 trials, 0 of them finished already" in out
    assert "learning_rate 0.1, seed 0, task 1/" in out  # Told before the trial ends.
    assert "no finite loss" in out  # The second trial diverged.
    (winner,) = tmp_path.rglob("winner*.flags")
    assert "--learning_rate=0.1" in winner.read_text()
    (result,) = tmp_path.rglob(FILE_NAME)
    assert read_record(result).settings.tasks == "tuning"
    written = result.stat().st_mtime_ns
    (best,) = grid(*SMALL, "--sweep=learning_rate:0.1", output_dir=tmp_path, seeds="0")
    assert best.runs[0].is_finished
    assert run_locally(best.runs, 1, print) == {}
    assert result.stat().st_mtime_ns == written


@pytest.mark.nightly
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("victim", ["trial", "sweep"])
def test_what_is_killed_goes_on(tmp_path, victim, signum):
    """A killed trial is started again; a killed sweep's trials end, and it goes on with them."""
    argv = ["sweep", *SMALL, "--sweep=learning_rate:0.1", "--seeds=0", "--epochs=40",
            "--checkpoint_every=0.2", f"--output_dir={tmp_path}"]  # fmt: skip
    process = started(*argv)
    _wait_for(lambda: whole_checkpoints(tmp_path))
    trial = psutil.Process(int((whole_checkpoints(tmp_path)[0].parents[1] / "lock").read_text()))
    os.kill(trial.pid if victim == "trial" else process.pid, signum)
    if victim == "sweep":
        _, err = process.communicate()
        assert process.returncode == (-signum if signum == signal.SIGKILL else 128 + signum)
        assert signum == signal.SIGKILL or "rerun the same command" in err
        _wait_for(lambda: not trial.is_running())
        process = started(*argv)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert ("killed, and started again" in out) == (victim == "trial")
    (log,) = tmp_path.rglob(LOG)
    assert "going on from step" in log.read_text()


def whole_checkpoints(folder):
    return [path for path in folder.rglob("checkpoints/*") if path.suffix != ".tmp"]


def _wait_for(condition, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
