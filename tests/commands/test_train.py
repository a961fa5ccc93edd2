"""Several seeds at once: each in a process of its own, and the same as alone."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tensorflow as tf

from nccl_tf import machine
from nccl_tf.commands import train
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.launch import pool
from nccl_tf.experiment.launch.pool import choose_workers, default_workers
from nccl_tf.experiment.run.memory_check import PROCESS_BYTES
from nccl_tf.experiment.run.run_file import write_run_file
from nccl_tf.experiment.run.train import Run, default_threads
from nccl_tf.machine import gpu_ids
from nccl_tf.records.options import resolve_options
from tests.experiment.launch import makes
from tests.experiment.launch.test_sweep import whole_checkpoints

ROOT = Path(__file__).parents[2]
SMALL = (
    "--method=er_ring", "--dataset=split_digits", "--head=single", "--hidden=8", "--max_tasks=2",
    "--epochs=20", "--checkpoint_every=0.1",
)  # fmt: skip


def records(folder):
    """The records below a folder by their seed."""
    found = [json.loads(path.read_text()) for path in folder.rglob("result.json")]
    return {record["seed"]: record for record in found}


@pytest.mark.processes
def test_seeds_at_once_end_as_alone_though_one_is_killed(command, tmp_path):
    argv = [*SMALL, "--seeds=0,1", "--workers=2", "--threads=1"]
    argv.append(f"--output_dir={tmp_path / 'both'}")
    both = subprocess.Popen(
        [sys.executable, "run.py", *argv, "--progress=json"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + 180
    while not whole_checkpoints(tmp_path) and time.monotonic() < end:
        assert both.poll() is None, both.stderr.read()
        time.sleep(0.02)
    children = psutil.Process(both.pid).children()
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    victim = int((whole_checkpoints(tmp_path)[0].parents[1] / "lock").read_text())
    assert len(workers) == 2 and victim in [worker.pid for worker in workers]
    os.kill(victim, signal.SIGKILL)
    out, err = both.communicate()
    assert both.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert {event["seed"] for event in events if event["event"] == "task"} == {0, 1}
    assert [event["seed"] for event in events if event["event"] == "resumed"]
    assert [event["seed"] for event in events if event["event"] == "result"] == [0, 1]
    assert len(list(tmp_path.rglob("*.png"))) == 4

    code, out, err = command(*SMALL, "--seeds=0,1", "--workers=1", f"--output_dir={tmp_path}")
    assert code == 0, err
    at_once, in_turn = records(tmp_path / "both"), records(tmp_path / "split_digits-single")
    for seed in (0, 1):
        for name in ("state_sha256", "accuracy_matrix", "settings_hash"):
            assert at_once[seed][name] == in_turn[seed][name]
        assert at_once[seed]["options"]["workers"] == 2 and in_turn[seed]["options"]["workers"] == 1
        assert at_once[seed]["options"]["threads"] == 1

    code, out, _ = command(*argv)
    assert code == 0 and out.count("finished already") == 2 and "2 seeds (0,1)" in out


def assert_one_sentence(ended, code, sentence):
    actual, _, err = ended
    assert actual == code
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert sentence in line and "Traceback" not in err


@pytest.mark.parametrize(
    ("make", "code", "sentence"),
    [(makes.refuse, 2, "no data in /nowhere"), (makes.diverge, 3, "ten steps in a row")],
)
def test_what_ends_a_seed_is_one_sentence(command, tmp_path, monkeypatch, make, code, sentence):
    monkeypatch.setattr(train, "train_and_plot", make)
    flags = [*SMALL, "--seeds=0,1", "--workers=2", f"--output_dir={tmp_path / 'runs'}"]
    assert_one_sentence(command(*flags), code, sentence)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("argv", "code", "sentence"),
    [
        (["--dataset=split_mini_imagenet", "--manual_dir=/nowhere"], 2, "/nowhere"),
        ([*SMALL, "--learning_rate=1e30"], 3, "ten steps in a row"),
    ],
)
def test_what_ends_a_trained_seed_is_one_sentence(command, tmp_path, argv, code, sentence):
    flags = [*argv, "--seeds=0,1", "--workers=2", f"--output_dir={tmp_path}"]
    assert_one_sentence(command(*flags), code, sentence)


def test_workers_and_replicas_are_refused_together(command):
    code, _, err = command("--seeds=0,1", "--workers=2", "--distribute=mirrored")
    assert code == 2 and "--workers=2 with --distribute=mirrored" in err


@pytest.fixture
def resumed(command, tmp_path, monkeypatch):
    """Goes on with a run that was begun with these flags; returns its options, or the error."""
    monkeypatch.setattr(train, "_train_in_turn", lambda runs, console: runs[0])

    def resume(given, *flags):
        write_run_file(tmp_path / "seed0", resolve({}), 0, given)
        code, _, err = command(f"--resume={tmp_path / 'seed0'}", *flags)
        return err if isinstance(code, int) else code.options

    return resume


def test_a_resumed_run_has_the_options_it_was_begun_with(resumed):
    options = resumed({"diagnostics": "subset", "data_dir": "/mine", "threads": 2}, "--threads=1")
    assert (options.diagnostics, options.data_dir, options.threads) == ("subset", "/mine", 1)


def test_a_resumed_run_is_not_begun_again(resumed):
    options = resumed({"overwrite": True, "seeds": (0, 4), "progress": "json", "output_dir": "x"})
    assert (options.overwrite, options.seeds, options.progress) == (False, (0,), None)
    assert options.output_dir == "runs"


def test_a_noted_option_of_another_kind_is_refused(resumed):
    assert "holds no run that can be resumed" in resumed({"threads": "x"})


def test_default_workers_stay_within_every_bound():
    for waiting, cores, gpus, memory in itertools.product((1, 2, 5), (1, 2, 64), (0, 1, 4), (0, 7)):
        count = default_workers(waiting, cores=cores, gpus=gpus, free_bytes=memory, run_bytes=2)
        bounds = (waiting, cores, gpus or cores, memory // 2)
        assert count == max(1, min(bounds))


@pytest.fixture
def big_machine(monkeypatch, tmp_path):
    """A machine of 64 cores and two GPUs; makes runs in an empty folder."""
    monkeypatch.setattr(pool, "count_cores", lambda: 64)
    monkeypatch.setattr(pool, "free_memory", lambda: 4 * PROCESS_BYTES)
    monkeypatch.setattr(machine, "_count_gpus", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(**flags):
        flags["output_dir"] = str(tmp_path)
        options = resolve_options(flags)
        return [Run.from_flags(flags, options, seed) for seed in range(5)]

    return make


def test_workers_are_chosen_for_the_machine(big_machine):
    assert choose_workers(big_machine(), None) == 2
    assert choose_workers(big_machine(device="gpu:1"), None) == 1
    assert choose_workers(big_machine(device="cpu"), None) == 3  # Memory is for less than four.
    assert choose_workers(big_machine(), 64) == 5
    assert choose_workers(big_machine(distribute="mirrored"), None) == 1
    assert choose_workers(big_machine()[:1], None) == 1


@pytest.mark.parametrize(
    ("visible", "ids"), [(None, ("0", "1")), ("3,5", ("3", "5")), ("3,-1,5", ("3",)), ("", ())]
)
def test_the_gpus_that_cuda_shows(monkeypatch, visible, ids):
    monkeypatch.setattr(machine, "_count_gpus", lambda: 2)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_ids() == ids


def test_threads_follow_the_network(big_machine, monkeypatch):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    dense, *_ = big_machine()
    convolutions, *_ = big_machine(dataset="split_cifar10")
    replicas, *_ = big_machine(distribute="mirrored")
    for cores, expected in ((1, [1, 1, 1]), (8, [1, 8, 8])):
        settings = (run.settings for run in (dense, convolutions, replicas))
        assert [default_threads(each, cores) for each in settings] == expected
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert default_threads(dense.settings, 8) == 3


def test_rows_removed_before_the_record_end_the_run(tmp_path, command, monkeypatch):
    def remove(record, folder):
        (folder / "steps.csv").unlink()
        return []

    monkeypatch.setattr(train, "_plot", remove)
    code, _, errors = command(
        "--method=finetune", "--dataset=split_digits", "--hidden=4", "--max_tasks=1",
        "--examples_per_task=20", f"--output_dir={tmp_path}",
    )  # fmt: skip
    assert code == 2 and "steps.csv was removed before the record was written" in errors
    assert not list(tmp_path.rglob("result.json"))


def test_the_command_computes_float32_as_float32(tmp_path, command):
    """TensorFlow's own choice, where a GPU has it, is TensorFloat-32; a processor has not."""
    tf.config.experimental.enable_tensor_float_32_execution(True)
    flags = ["--method=finetune", "--dataset=split_digits", "--hidden=4", "--max_tasks=1",
             "--examples_per_task=20", f"--output_dir={tmp_path}"]  # fmt: skip
    try:
        assert command(*flags)[0] == 0
        assert not tf.config.experimental.tensor_float_32_execution_enabled()
        ((_, record),) = records(tmp_path).items()
        assert record["tensorfloat32"] is False
        code, _, err = command(*flags, "--precision=tensorfloat32")
        assert code == 2 and "--precision=float32" in err and err.count("\n") == 1
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)


def test_several_methods_are_trained_and_compared(command, tmp_path, monkeypatch):
    """A flag that one of them lacks is left out for it, and named; one that all lack is refused."""
    flags = ["--dataset=split_digits", "--hidden=4", "--max_tasks=2", "--examples_per_task=20"]
    code, out, err = command(
        *flags, "--method=finetune,nccl_ring", "--beta_max=0.5", f"--output_dir={tmp_path}",
        "--workers=1",
    )  # fmt: skip
    assert not code and "left out for finetune: --beta_max" in err
    table = out.rpartition("accuracy %")[2]
    assert "Fine-tune" in table and "NCCL + Ring" in table
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    (nccl,) = (r for r in records if r["method"] == "nccl_ring")
    assert nccl["settings"]["hyperparameters"]["beta_max"] == 0.5 and len(records) == 2
    code, _, err = command(*flags, "--method=finetune,er_ring", "--beta_max=0.5")
    assert code == 2 and "belongs to nccl_ring" in err
