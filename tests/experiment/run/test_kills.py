"""Twenty methods, killed five times by the command and by `learn`, end with a whole run's bits.

Signals come at random moments, some of them while a checkpoint is written.
"""

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.experiment.run.forks import start

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("processes")]

TWENTY = (
    "agem", "clser", "derpp", "er_ace", "er_ring", "ewc", "gdumb", "gec", "gem",
    "icarl", "lwf", "mega2", "mer", "mir", "nccl_reservoir", "nccl_ring", "ranpac", "slda",
    "si", "stable_sgd",
)  # fmt: skip
SIGNALS = signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGKILL
NOT_THE_RESULT = "train_seconds", "compile_seconds", "eval_seconds", "peak_memory_bytes", "commit"
STREAM = ["--dataset=permuted_digits", "--num_tasks=4", "--epochs=4"]
STREAMS = {
    # It knows a task by its new classes.
    "icarl": ["--dataset=split_digits", "--num_tasks=5", "--head=single", "--epochs=20"],
    # The matrices of its 2,000 features would be written for minutes, five times a second.
    "ranpac": [*STREAM, "--projected_features=100"],
}
LONGEST = 0.5  # seconds from a new checkpoint to the signal


def files(folder: Path) -> set[tuple[Path, int]]:
    """Names and times of the files below a folder, those half written among them."""
    found = set()
    for path in folder.rglob("*checkpoint*"):
        with contextlib.suppress(FileNotFoundError):
            found.add((path, path.stat().st_mtime_ns))
    return found


def run_killed(module: str, argv: list[str], folder: Path, finished: Callable[[], bool]) -> int:
    """Starts a module, sends it the five signals, lets it end, and returns how many it got."""
    random = np.random.default_rng(0)
    errors = folder.with_suffix(".stderr")
    received = 0
    for number in itertools.count():
        known = files(folder)
        process = start(module, argv, errors)
        if number < len(SIGNALS):
            while process.is_alive() and not files(folder) - known:
                time.sleep(0.01)
            process.join(float(random.uniform(0, LONGEST)))
            if process.is_alive():
                os.kill(process.pid, SIGNALS[number])
                received += 1
        process.join()
        if process.exitcode == 0:
            assert finished(), errors.read_text(encoding="utf-8")
            return received
        assert number < len(SIGNALS), errors.read_text(encoding="utf-8")
        expected = -SIGNALS[number], 128 + SIGNALS[number]
        assert process.exitcode in expected, errors.read_text(encoding="utf-8")


def run_whole(module: str, argv: list[str], errors: Path) -> None:
    """Starts a module and lets it end."""
    process = start(module, argv, errors)
    process.join()
    assert process.exitcode == 0, errors.read_text(encoding="utf-8")


@pytest.mark.parametrize("method", TWENTY)
def test_by_the_command(method, tmp_path):
    def argv(folder):
        return [
            f"--method={method}", *STREAMS.get(method, STREAM), "--checkpoint_every=0.2",
            "--threads=1", "--progress=none", f"--output_dir={folder}",
        ]  # fmt: skip

    def result(folder):
        (path,) = folder.glob("*/*/*/seed0/result.json")
        record = json.loads(path.read_text())
        kept = {name: value for name, value in record.items() if name not in NOT_THE_RESULT}
        return kept, (path.parent / "steps.csv").read_text()

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_whole("nccl_tf", argv(whole), tmp_path / "whole.stderr")
    received = run_killed(
        "nccl_tf", argv(killed), killed, lambda: any(killed.glob("*/*/*/seed0/result.json"))
    )
    assert received >= 3
    assert result(killed) == result(whole)


@pytest.mark.parametrize("method", [*TWENTY, "adapters:er_reservoir"])
def test_by_learn(method, tmp_path):
    module = "tests.experiment.run.learn_process"

    def argv(name):
        return [method, str(tmp_path / name), str(tmp_path / f"{name}.txt")]

    run_whole(module, argv("whole"), tmp_path / "whole.stderr")
    result = tmp_path / "killed.txt"
    received = run_killed(module, argv("killed"), tmp_path / "killed", result.exists)
    assert received >= 3
    assert result.read_text() == (tmp_path / "whole.txt").read_text()
