"""Processes that make one run after the other."""

import json
import signal
import sys

import pytest

from nccl_tf.experiment.launch.pool import run_locally
from nccl_tf.experiment.launch.worker import LOG, make_run
from nccl_tf.experiment.run import signals
from nccl_tf.records.record import read_record

SMALL = {
    "dataset": "split_digits", "head": "single", "max_tasks": 2, "examples_per_task": 60,
    "hidden": (8,), "threads": 1,
}  # fmt: skip
# Says that each run is done, but for those of the rate that it is to die at, the first time.
PROGRAM = """#!{python}
import json, os, sys
starts = {folder!r} + "/starts"
open(starts, "a").write("started\\n")
for line in sys.stdin:
    job = json.loads(line)
    with open({folder!r} + "/overwrites", "a") as file:
        print(job["options"].get("overwrite"), file=file)
    if job["flag_values"]["learning_rate"] == {deadly} and len(open(starts).readlines()) < 2:
        os.kill(os.getpid(), 9)
    os.write(job["ready"], b"\\n")
"""


def runs(folder, rates, **flags):
    """A run of each rate."""
    flags = {"method": "finetune", **SMALL, "output_dir": str(folder), **flags}
    return [make_run({**flags, "learning_rate": rate}, 0) for rate in rates]


@pytest.fixture
def starts(tmp_path, monkeypatch):
    """Puts a program in the place of Python; returns how often it was started."""

    def begin(deadly=None):
        program = tmp_path / "program"
        text = PROGRAM.format(python=sys.executable, folder=str(tmp_path), deadly=deadly)
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return lambda: len((tmp_path / "starts").read_text().splitlines())

    return begin


@pytest.mark.parametrize(("workers", "expected"), [(1, 1), (2, 2)])
def test_a_worker_is_started_once(tmp_path, starts, workers, expected):
    count, said = starts(), []
    trials = runs(tmp_path, (0.1, 0.2, 0.3, 0.4))
    assert run_locally(trials, workers, said.append) == {}
    assert count() == expected
    assert [line.partition(":")[0] for line in said] == ["finished"] * 4
    assert said[-1].endswith("(4 of 4)") and (trials[-1].folder / LOG).exists()


def test_a_worker_that_is_killed_at_a_later_run_is_replaced(tmp_path, starts):
    count, said = starts(deadly=0.2), []
    assert run_locally(runs(tmp_path, (0.1, 0.2, 0.3)), 1, said.append) == {}
    assert count() == 2
    assert sum("killed, and started again" in line for line in said) == 1


@pytest.mark.parametrize(("has_old", "told"), [(False, "False"), (True, "None")])
def test_a_killed_run_that_overwrites_goes_on_from_its_own_checkpoint(
    tmp_path, starts, has_old, told
):
    """Once it has removed the record of before; with it, nothing of its own is there yet."""
    starts(deadly=0.1)
    (trial,) = runs(tmp_path, (0.1,), overwrite=True)
    if has_old:
        trial.folder.mkdir(parents=True)
        (trial.folder / "result.json").write_text("{}")
    run_locally([trial], 1, lambda line: None)
    assert (tmp_path / "overwrites").read_text().split() == ["None", told]


@pytest.mark.parametrize("other", [{"threads": 2}, {"deterministic": True}, {"device": "cpu"}])
def test_another_setup_of_tensorflow_needs_another_process(tmp_path, starts, other):
    count = starts()
    trials = [*runs(tmp_path, (0.1,)), *runs(tmp_path, (0.2,), **other)]
    assert run_locally(trials, 1, lambda line: None) == {}
    assert count() == 2


@pytest.mark.processes
def test_a_later_run_ends_in_the_bits_of_a_process_of_its_own(tmp_path):
    """Its log is its own too."""
    flags = {**SMALL, "progress": "json"}
    first, second = tmp_path / "one", tmp_path / "other"
    together = [make_run({**flags, "method": m, "output_dir": str(first)}, 0)
                for m in ("stable_sgd", "nccl_ring")]  # fmt: skip
    assert run_locally(together, 1, print) == {}
    alone = make_run({**flags, "method": "nccl_ring", "output_dir": str(second)}, 0)
    assert run_locally([alone], 1, print) == {}
    later = together[1].folder
    one, other = (read_record(folder / "result.json") for folder in (later, alone.folder))
    for name in ("state_sha256", "accuracy_matrix"):
        assert one[name] == other[name]
    events = [json.loads(line) for line in (later / LOG).read_text().splitlines()
              if line.startswith("{")]  # fmt: skip
    assert events[0]["event"] == "run" and events[0]["method"] == "nccl_ring"
    assert [event["event"] for event in events].count("run") == 1


STOPPED_TWICE = """#!{python}
import os, signal, sys, time
sys.stdin.readline()
time.sleep(0.2)
os.kill(os.getppid(), signal.SIGINT), os.kill(os.getppid(), signal.SIGTERM)
sys.stdin.read()
open({file!r}, "w").close()
"""


def test_a_second_signal_leaves_no_process(tmp_path, monkeypatch):
    program, outlived = tmp_path / "program", tmp_path / "outlived"
    program.write_text(STOPPED_TWICE.format(python=sys.executable, file=str(outlived)))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(signals.os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        run_locally(runs(tmp_path, (0.1,)), 1, lambda line: None)
    assert ended.value.code == 128 + signal.SIGTERM and not outlived.exists()
