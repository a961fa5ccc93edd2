"""Signals reach a run at once, whatever its main thread does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_tf.experiment.run.signals import interrupt_requests

ROOT = Path(__file__).parents[3]

BUSY = """
import hashlib, os, signal, threading
from nccl_tf.experiment.run.signals import interrupt_requests
with interrupt_requests(resume_hint="give the same command") as request:
    {before}
    for number in {numbers}:
        os.kill(os.getpid(), number)
    # Python calls no handler meanwhile, as while TensorFlow compiles.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
STOPS = "SIGINT: stops after the steps under way; a second signal ends it at once\n"


@pytest.mark.parametrize(
    ("before", "numbers", "code", "said"),
    [
        ("", (signal.SIGTERM,), 143, "stopped by SIGTERM; give the same command\n"),
        ("", (signal.SIGINT,), 130, "stopped by SIGINT; give the same command\n"),
        ("request.interruption()", (signal.SIGINT, signal.SIGTERM), 143, STOPS),
        ("request.interruption()", (signal.SIGINT, signal.SIGINT), 130, STOPS),
    ],
)
def test_a_process_that_is_busy_ends(before, numbers, code, said):
    """At the first signal before it trains, at the second one then."""
    script = BUSY.format(before=before, numbers=[int(number) for number in numbers])
    argv = [sys.executable, "-c", script]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (code, said)


def test_signals_become_requests_and_handlers_return():
    before = signal.getsignal(signal.SIGTERM)
    with interrupt_requests() as request:
        assert request.interruption() is None
        os.kill(os.getpid(), signal.SIGTERM)
    assert request.signum == signal.SIGTERM
    assert request.interruption().exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1


STOPPED = """
import hashlib, os, signal, sys
from nccl_tf.experiment.run import seed
def build_forever(*arguments, **more):
    os.kill(os.getpid(), signal.SIGTERM)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
seed.build_learner = build_forever
from nccl_tf.cli import main
main(["run.py", *sys.argv[1:]])
"""


@pytest.mark.processes
def test_a_run_that_is_stopped_while_it_builds_leaves_what_resumes(command, tmp_path):
    argv = [
        "--method=finetune", "--dataset=split_digits", "--max_tasks=2", "--hidden=4",
        f"--output_dir={tmp_path}",
    ]  # fmt: skip
    process = [sys.executable, "-c", STOPPED, *argv]
    ended = subprocess.run(process, cwd=ROOT, capture_output=True, text=True, timeout=100)
    (folder,) = tmp_path.glob("*/*/*/seed0")
    hint = f"the same command, or --resume={folder}, resumes it"
    assert ended.returncode == 143
    assert ended.stderr.splitlines()[-1] == f"stopped by SIGTERM; {hint}"
    assert not [path.name for path in folder.iterdir() if path.suffix == ".tmp"]
    code, _, errors = command(f"--resume={folder}")
    assert code == 0, errors
    assert (folder / "result.json").is_file()
