"""Processes that make one run after the other."""

import json

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.launch.pool import run_locally
from nccl_tf.experiment.launch.worker import LOG
from nccl_tf.experiment.run import signals
from nccl_tf.experiment.run.train import Run
from nccl_tf.records.options import resolve_options
from nccl_tf.records.record import read_record
from tests.experiment.launch import makes

SMALL = {
    "dataset": "split_digits", "head": "single", "max_tasks": 2, "examples_per_task": 60,
    "hidden": (8,), "threads": 1,
}  # fmt: skip


def runs(folder, rates, **flags):
    """A run of each rate."""
    flags = {"method": "finetune", **SMALL, "output_dir": str(folder), **flags}
    return [run_of({**flags, "learning_rate": rate}) for rate in rates]


def run_of(flags):
    return Run.from_flags(flags, resolve_options(flags), 0)


def starts(folder):
    """[(process, learning rate, whether it overwrites)] of each start."""
    return [line.split() for line in (folder / "starts").read_text().splitlines()]


def processes(folder):
    return len({process for process, *_ in starts(folder)})


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_is_started_once(tmp_path, workers):
    said = []
    trials = runs(tmp_path, (0.1, 0.2, 0.3, 0.4))
    assert run_locally(trials, workers, said.append, make=makes.note) == {}
    assert len(starts(tmp_path)) == 4 and processes(tmp_path) <= workers
    assert [line.partition(":")[0] for line in said] == ["finished"] * 4
    assert said[-1].endswith("(4 of 4)") and (trials[-1].folder / LOG).exists()


def test_a_worker_that_is_killed_at_a_later_run_is_replaced(tmp_path):
    said = []
    trials = runs(tmp_path, (0.1, 0.2, 0.3))
    assert run_locally(trials, 1, said.append, make=makes.die_once_at_rate_2) == {}
    assert [rate for _, rate, _ in starts(tmp_path)] == ["0.1", "0.2", "0.2", "0.3"]
    assert processes(tmp_path) == 2
    assert sum("killed, and started again" in line for line in said) == 1


@pytest.mark.parametrize(("make", "count"), [(makes.die_twice, 3), (makes.die, 3)])
def test_a_killed_process_is_started_again_twice(tmp_path, make, count):
    (trial,) = runs(tmp_path, (0.1,))
    said = []
    failed = run_locally([trial], 1, said.append, make=make)
    assert len(starts(tmp_path)) == count
    assert sum("killed, and started again" in line for line in said) == 2
    assert list(failed) == ([trial.folder] if make is makes.die else [])


def test_a_worker_that_breaks_with_an_empty_log_gives_its_reason(tmp_path):
    (trial,) = runs(tmp_path, (0.1,))
    failed = run_locally([trial], 1, lambda line: None, make=makes.fill_the_log)
    assert "No space left on device" in failed[trial.folder]
    assert (trial.folder / LOG).read_text() == ""


def test_a_refusal_that_no_log_takes_is_passed_on(tmp_path):
    (trial,) = runs(tmp_path, (0.1,))
    with pytest.raises(UserError, match="no space in /nowhere"):
        run_locally([trial], 1, lambda line: None, make=makes.refuse_on_a_full_disk)


def test_a_run_that_no_log_takes_the_lines_of_is_made(tmp_path):
    trials = runs(tmp_path, (0.1, 0.2))
    assert run_locally(trials, 1, lambda line: None, make=makes.print_on_a_full_disk) == {}


@pytest.mark.parametrize(("has_old", "told"), [(False, "False"), (True, "True")])
def test_a_killed_run_that_overwrites_goes_on_from_its_own_checkpoint(tmp_path, has_old, told):
    """Once it has removed the record of before; with it, nothing of its own is there yet."""
    (trial,) = runs(tmp_path, (0.1,), overwrite=True)
    if has_old:
        trial.folder.mkdir(parents=True)
        (trial.folder / "result.json").write_text("{}")
    run_locally([trial], 1, lambda line: None, make=makes.die_twice)
    assert [overwrite for *_, overwrite in starts(tmp_path)] == ["True", told, told]


@pytest.mark.parametrize("other", [{"threads": 2}, {"deterministic": True}, {"device": "cpu"}])
def test_another_setup_of_tensorflow_needs_another_process(tmp_path, other):
    trials = [*runs(tmp_path, (0.1,)), *runs(tmp_path, (0.2,), **other)]
    assert run_locally(trials, 1, lambda line: None, make=makes.note) == {}
    assert processes(tmp_path) == 2


@pytest.mark.processes
def test_a_later_run_ends_in_the_bits_of_a_process_of_its_own(tmp_path):
    """Its log is its own too."""
    flags = {**SMALL, "progress": "json"}
    first, second = tmp_path / "one", tmp_path / "other"
    together = [run_of({**flags, "method": m, "output_dir": str(first)})
                for m in ("stable_sgd", "nccl_ring")]  # fmt: skip
    assert run_locally(together, 1, print) == {}
    alone = run_of({**flags, "method": "nccl_ring", "output_dir": str(second)})
    assert run_locally([alone], 1, print) == {}
    later = together[1].folder
    one, other = (read_record(folder / "result.json").as_json() for folder in (later, alone.folder))
    for name in ("state_sha256", "accuracy_matrix"):
        assert one[name] == other[name]
    events = [json.loads(line) for line in (later / LOG).read_text().splitlines()
              if line.startswith("{")]  # fmt: skip
    assert events[0]["event"] == "run" and events[0]["method"] == "nccl_ring"
    assert [event["event"] for event in events].count("run") == 1


def test_a_second_signal_leaves_no_process(tmp_path, monkeypatch):
    codes = []
    monkeypatch.setattr(signals.os, "_exit", codes.append)
    with pytest.raises(signals.Interrupted):
        run_locally(runs(tmp_path, (0.1,)), 1, print, make=makes.stop_the_parent_twice)
    # Of two that wait, the system may deliver either first.
    assert codes in ([130], [143]) and not (tmp_path / "starts").exists()


def test_a_run_that_is_stopped_while_it_reports_comes_to_its_end(tmp_path):
    def listen(run, event):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run_locally(runs(tmp_path, (0.1,)), 1, print, listen, makes.report_until_stopped)
    assert len(starts(tmp_path)) == 1
