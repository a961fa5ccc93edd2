"""A sweep on a real Ray head of this machine, whose worker is killed in mid-trial."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

import psutil
import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.launch.ray import _gather, run_on_ray
from nccl_tf.experiment.run.train import Run
from nccl_tf.records.options import RunOptions
from nccl_tf.records.record import FILE_NAME
from tests.experiment.launch.test_sweep import whole_checkpoints

ROOT = Path(__file__).parents[3]
HAS_RAY = importlib.util.find_spec("ray") is not None
SMALL = {
    "method": "er_ring", "dataset": "split_digits", "head": "single", "hidden": (8,),
    "max_tasks": 2, "tasks": "tuning",
}  # fmt: skip


@pytest.fixture
def head(tmp_path):
    """Address and process of a head with two cores, which ends with the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = Path(sys.executable).with_name("ray")
    argv = [ray, "start", "--head", "--block", f"--port={port}", "--num-cpus=2",
            "--include-dashboard=false", "--disable-usage-stats"]  # fmt: skip
    log = (tmp_path / "ray.log").open("w")
    process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    _wait_for(lambda: "Ray runtime started" in (tmp_path / "ray.log").read_text())
    yield f"127.0.0.1:{port}", process
    tree = [process, *psutil.Process(process.pid).children(recursive=True)]
    process.terminate()
    process.wait()
    for one in tree[1:]:
        if one.is_running():
            one.kill()


def _wait_for(condition, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.nightly
@pytest.mark.skipif(not HAS_RAY, reason="the package ray is not installed")
def test_a_killed_worker_is_replaced_and_its_run_goes_on(head, tmp_path):
    address, process = head
    argv = [sys.executable, "run.py", "sweep", f"--output_dir={tmp_path / 'runs'}",
            f"--ray_address={address}", "--method=er_ring", "--dataset=split_digits",
            "--head=single", "--hidden=8", "--max_tasks=2", "--epochs=60", "--seeds=0",
            "--checkpoint_every=0.2", "--sweep=learning_rate:0.1,0.03"]  # fmt: skip
    sweep = subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _wait_for(lambda: whole_checkpoints(tmp_path))
    folder = whole_checkpoints(tmp_path)[0].parents[1]
    victim = int((folder / "lock").read_text())
    assert process.pid in [parent.pid for parent in psutil.Process(victim).parents()]
    os.kill(victim, signal.SIGKILL)
    out, err = sweep.communicate()
    assert sweep.returncode == 0, err
    assert "| 1 |" in out and "| 2 |" in out
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("result.json")]
    assert [record["settings"]["tasks"] for record in records] == ["tuning"] * 2
    assert int((folder / "lock").read_text()) != victim

    again = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert "2 trials, 2 of them finished already" in again.stdout


@pytest.mark.skipif(HAS_RAY, reason="the package ray is installed")
def test_without_the_package(tmp_path):
    run = Run.from_flags(SMALL, RunOptions(output_dir=str(tmp_path)), 0)
    with pytest.raises(UserError, match="pip install ray"):
        run_on_ray([run], "auto", print)


@pytest.mark.skipif(not HAS_RAY, reason="the package ray is not installed")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379", "127.0.0.1:x"])
def test_no_cluster_at_the_address(tmp_path, address):
    run = Run.from_flags(SMALL, RunOptions(output_dir=str(tmp_path)), 0)
    with pytest.raises(UserError, match="no Ray cluster answers"):
        run_on_ray([run], address, print)


class Cluster:
    """Ray's calls, with outcomes that are known beforehand."""

    exceptions = types.SimpleNamespace(RayError=RuntimeError)

    def __init__(self, outcomes):
        self._outcomes = iter(outcomes)

    def remote(self, **options):
        assert options["max_retries"] > 0 and options["max_calls"] == 1
        make = types.SimpleNamespace(remote=lambda given, seed: next(self._outcomes))
        return lambda function: make

    def wait(self, tasks):
        return tasks[:1], tasks[1:]

    def get(self, outcome):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_records_come_back_from_machines_that_share_no_folder(tmp_path):
    runs = [Run.from_flags(SMALL, RunOptions(output_dir=str(tmp_path)), seed) for seed in range(3)]
    outcomes = [("finished", b"{}"), ("failed", b"it diverged"), RuntimeError("workers died")]
    failed = _gather(Cluster(outcomes), runs, print)
    assert [(run.folder / FILE_NAME).exists() for run in runs] == [True, False, False]
    assert (runs[0].folder / FILE_NAME).read_bytes() == b"{}"
    assert failed == {
        runs[1].folder: "it diverged", runs[2].folder: "failed, workers died",
    }  # fmt: skip
    with pytest.raises(UserError, match="no such data"):
        _gather(Cluster([("refused", b"no such data")]), runs[1:2], print)
