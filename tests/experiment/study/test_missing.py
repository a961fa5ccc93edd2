"""What a study runs: trials until a flag file is there, then the seeds without a record."""

import pytest

from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.run.record import write_record
from nccl_tf.experiment.study import missing
from tests.experiment import sample
from tests.experiment.study import plans


class Machine:
    """In place of processes: writes a record for every run, better at lower rates."""

    def __init__(self, failing=()):
        self.made, self.failing = [], failing

    def finish(self, runs, flag_values, say):
        for run in runs:
            if run.is_finished:
                continue
            self.made.append((run.settings.tasks, run.settings.learning_rate, run.seed))
            rows = [[1 - run.settings.learning_rate / 2] * run.settings.max_tasks] * (
                run.settings.max_tasks
            )
            given = {name: v for name, v in run.flag_values.items() if v is not None}
            given |= {"num_tasks": run.settings.num_tasks}
            given.pop("seeds", None)
            write_record(sample.record(rows, run.seed, **given), run.folder)
        return {run.folder: "learning failed" for run in runs if self.failing}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Runs what cells lack on a machine that trains nothing; returns it and what was said."""

    def run(cells, finished=(), failing=False):
        machine, said = Machine(failing), []
        monkeypatch.setattr(missing, "finish", machine.finish)
        flag_values = {"output_dir": str(tmp_path / "runs")}
        options = resolve_options(flag_values)
        missing.run_missing(cells, set(finished), flag_values, options, said.append, repr)
        return machine.made, said

    return run


def test_tuning_comes_first_and_its_winner_is_written(tmp_path, study):
    cell = plans.cells(tmp_path)["heads", "mc_sgd"]
    made, _ = study([cell])
    tuning = [("tuning", rate, seed) for rate in (0.05, 0.1) for seed in (101, 102)]
    assert made == [*tuning, (None, 0.05, 0), (None, 0.05, 1)]
    assert cell.chosen()[1].learning_rate == 0.05
    assert "best of 2 points over learning_rate" in cell.flag_file.read_text()


def test_the_winner_runs_without_the_tuning_flags(tmp_path, study):
    cell = plans.cells(tmp_path)["digits", "nccl"]
    made, _ = study([cell])
    assert len(made) == 4 + 2
    assert cell.chosen()[1].max_tasks == 3


def test_what_is_finished_or_published_is_not_run_again(tmp_path, study):
    cell = plans.cells(tmp_path)["heads", "mc_sgd"]
    plans.choose(cell, learning_rate=0.1)
    digest = cell.chosen()[1].digest()
    assert study([cell], finished=[(digest, 0)])[0] == [(None, 0.1, 1)]
    made, said = study([cell], finished=[(digest, 0)])
    assert made == [] and said[-1] == "mc_sgd in heads: 0 of 2 runs missing"


def test_a_system_that_has_no_meaning_there_is_left_out(tmp_path, study):
    made, said = study([plans.cells(tmp_path)["digits", "er_ace"]])
    assert (made, said) == ([], ["er_ace in digits: left out, no class is new"])


def test_where_no_point_learned_nothing_is_chosen(tmp_path, study):
    cells = plans.cells(tmp_path)
    made, said = study([cells["heads", "mc_sgd"]], failing=True)
    assert [tasks for tasks, *_ in made] == ["tuning"] * 4
    assert "no point of the grid finished: learning failed" in said[-1]
    assert not cells["heads", "mc_sgd"].flag_file.exists()
