"""The studies: their pages and plans, and what is run of a plan."""

import argparse
import importlib
import re

import pytest

from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.records.record import write_record
from nccl_tf.reports.records import Records
from studies import study as studies
from studies.comparison.__main__ import STUDY as COMPARISON
from studies.comparison.__main__ import figure
from studies.comparison.step_costs import read_costs
from studies.step_sizes.__main__ import STUDY as STEP_SIZES
from tests.experiment import sample

PLAN = """
[flags]
average_weights = 0.9

[[settings]]
name = "digits"
title = "Digits, 100 slots"
flags = { dataset = "permuted_digits", memory_per_class = 1, max_tasks = 3 }
tuning_flags = { max_tasks = 2 }
seeds = [0, 1]
tuning_seeds = [100]

[[systems]]
name = "nccl"
flags = { method = "nccl_reservoir" }
grids = { mnist = { learning_rate = [0.05, 0.1] } }
tuning_seeds = { digits = [101, 102] }

[[systems]]
name = "er_ace"
flags = { method = "er_ace" }
grids = { mnist = { learning_rate = [0.1] } }
left_out = { digits = "no class is new" }
"""


@pytest.mark.records
@pytest.mark.parametrize("name", ["comparison", "step_sizes"])
def test_a_page_is_what_its_records_give(name, restored_tables):
    module = importlib.import_module(f"studies.{name}.__main__")
    load_plugins(module.STUDY.plugins)
    found = [Records.below(folder) for folder in module.STUDY.records]
    assert not [problem for one in found for problem in one.broken]
    records = [record for one in found for record in one.records]
    assert module.show(argparse.Namespace(check=True, figures=False), records) == 0


@pytest.mark.parametrize("study", [COMPARISON, STEP_SIZES], ids=["comparison", "step_sizes"])
def test_what_tuning_chose_is_a_point_of_its_grid(study, restored_tables):
    cells = [cell for cell in study.cells() if cell.chosen is not None]
    assert len(cells) > 50
    for cell in cells:
        values = {sweep.name: sweep.values for sweep in cell.sweeps()}
        assert all(
            value in values[name] for name, value in cell.chosen.items() if name in values
        ), cell  # fmt: skip
        assert set(values) <= set(cell.chosen) <= {*values, "smoothness"}
        cell.settings()


@pytest.fixture
def run_missing(tmp_path, monkeypatch):
    """Runs what a small plan lacks on a machine that trains nothing; returns what it ran."""
    (tmp_path / "plan.toml").write_text(PLAN)
    study = studies.Study(tmp_path, (tmp_path / "published",))

    def run(failing=False):
        made = []

        def finish(runs, flag_values, say):
            for run in runs:
                made.append((run.settings.tasks, run.settings.learning_rate, run.seed))
                tasks = run.settings.max_tasks
                rows = [[1 - run.settings.learning_rate / 2] * tasks] * tasks
                given = {name: v for name, v in run.flag_values.items() if v is not None}
                given = {**given, "num_tasks": run.settings.num_tasks}
                given.pop("seeds", None)
                write_record(sample.record(rows, run.seed, **given), run.folder)
            return {run.folder: "learning failed" for run in runs if failing}

        monkeypatch.setattr(studies, "finish", finish)
        study.run_missing([f"--output_dir={tmp_path / 'runs'}"])
        return made

    return study, run


def test_tuning_comes_first_and_its_choice_is_kept(run_missing, tmp_path):
    study, run = run_missing
    tuning = [("tuning", rate, seed) for rate in (0.05, 0.1) for seed in (101, 102)]
    assert run() == [*tuning, (None, 0.05, 0), (None, 0.05, 1)]
    (cell, left_out) = study.cells()
    assert cell.chosen == {"learning_rate": 0.05} and cell.settings().max_tasks == 3
    assert left_out.chosen is None and left_out.refusal() == "no class is new"
    assert run() == []  # Every run has a record.


def test_where_no_point_learned_nothing_is_chosen(run_missing, capsys):
    study, run = run_missing
    assert [tasks for tasks, *_ in run(failing=True)] == ["tuning"] * 4
    assert "learning failed" in capsys.readouterr().out
    assert study.cells()[0].chosen is None


@pytest.mark.parametrize(
    ("values", "chosen", "at_an_end"),
    [
        ([0.05, 0.1, 0.3], 0.1, False),
        ([0.05, 0.1, 0.3], 0.3, True),
        ([0.3, 0.05, 0.1], 0.05, True),
        ([0.1], 0.1, False),
        (["mean", "sum"], "mean", False),
    ],
)
def test_a_value_at_an_end_of_its_grid_is_known(values, chosen, at_an_end):
    setting = {"name": "digits", "flags": {"dataset": "split_digits"}}
    system = {"grids": {"digits": {"number": values}}}
    cell = studies.Cell({}, setting, system, {"number": chosen})
    assert cell.is_at_an_end("number") == at_an_end


def test_a_picture_has_a_point_and_an_averaged_one_for_each_system_with_runs(run_missing):
    study, run = run_missing
    run()
    (rows,) = study.results(Records.below(study.folder / "runs").records).values()
    (axes,) = figure(rows).axes
    assert axes.get_legend_handles_labels()[1] == ["NCCL + Reservoir"]


def test_times_of_a_dense_network_stand_beside_no_other():
    """Of each table of the comparison; the page says at which commit they were measured."""
    times, commit = read_costs()
    assert times["finetune"] == 1.0 and re.fullmatch("[0-9a-f]{40}", commit)
    page = (studies.ROOT / "docs" / "comparison.md").read_text()
    assert commit[:8] in page
    for part in page.split("\n## ")[1:]:
        is_dense = "mnist" in part.split("\n![", 1)[0]
        assert ("| time of a step |" in part) == is_dense or "| system | tuned |" not in part
