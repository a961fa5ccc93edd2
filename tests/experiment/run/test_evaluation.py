"""Runs that evaluate fewer tasks: the same training, and a record that says what it lacks."""

import pytest

from nccl_tf.arguments.evaluate import tasks_to_evaluate
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.seed import run_seed
from nccl_tf.experiment.run.signals import InterruptRequest
from nccl_tf.records import record as records
from nccl_tf.records.options import RunOptions
from nccl_tf.reports.figures.run import accuracy_over_time, save_figures
from nccl_tf.reports.figures.stream import accuracy_over_tasks, settings_lines
from nccl_tf.reports.record_lines import as_line, publish, read_lines
from nccl_tf.reports.run_table import run_columns
from nccl_tf.reports.tables import results_table
from nccl_tf.reports.terminal import run_summary
from tests.experiment import sample
from tests.experiment.run.test_resume import built_once

TINY = {
    "method": "er_ring", "dataset": "split_digits", "head": "single", "max_tasks": 4,
    "examples_per_task": 40, "hidden": (8,), "average_weights": 0.9,
}  # fmt: skip
NAN = float("nan")
FEWER = ("every:2",)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A record for each choice, and a folder of each."""
    result = {}
    with built_once():
        for evaluate in ("all", *FEWER):
            folder = tmp_path_factory.mktemp("run")
            settings = resolve({**TINY, "evaluate": evaluate})
            result[evaluate] = run_seed(settings, RunOptions(), 0, folder, InterruptRequest())
    return result


@pytest.mark.parametrize("evaluate", FEWER)
def test_it_trains_the_same_and_measures_less(runs, evaluate, tmp_path):
    record, whole = runs[evaluate], runs["all"]
    assert record.state_sha256 == whole.state_sha256
    for name in ("accuracy_matrix", "averaged_accuracy_matrix"):
        for i, row in enumerate(getattr(record, name)):
            numbers = tasks_to_evaluate(evaluate, i, 4)
            assert [j for j, value in enumerate(row) if value is not None] == list(numbers)
            assert all(row[j] == getattr(whole, name)[i][j] for j in numbers)
    for name in ("average_accuracy", "learning_accuracy", "backward_transfer", "initial_accuracy"):
        assert getattr(record, name) == getattr(whole, name)
    for name in ("forgetting", "forward_transfer"):
        assert getattr(record, name) is None and "as with --evaluate=all" in record.undefined[name]
    assert record.averaged_forgetting is None
    assert records.read_record(records.write_record(record, tmp_path)) == record


def test_what_evaluates_all_tasks_is_one_setting():
    whole, fewer = resolve(TINY), resolve({**TINY, "evaluate": "new"})
    assert resolve({**TINY, "evaluate": "all"}) == whole == resolve({**TINY, "evaluate": "every:1"})
    assert whole.as_json()["evaluate"] is None
    assert fewer.as_json() == {**whole.as_json(), "evaluate": "new"}
    assert fewer == resolve({**TINY, "evaluate": "every:4"})
    assert fewer.digest() != whole.digest()


@pytest.mark.parametrize("evaluate", ["all", "every:2"])
def test_a_record_that_lacks_what_it_was_to_measure_is_refused(evaluate, tmp_path):
    values = sample.matrix(4)
    values[1, 0] = NAN
    path = records.write_record(sample.record(values, evaluate=evaluate), tmp_path)
    with pytest.raises(UserError, match="no accuracy on task 1 after task 2"):
        records.read_record(path)


@pytest.mark.parametrize("evaluate", FEWER)
def test_reports_show_what_there_is(runs, evaluate, tmp_path):
    record = runs[evaluate]
    summary = run_summary(record)
    assert "forgetting         undefined: needs the accuracy on each task after" in summary
    assert len(save_figures(record, tmp_path)) == 2
    *_, means = accuracy_over_time(record).axes[0].lines
    rows = [i + 1 for i in range(4) if len(tasks_to_evaluate(evaluate, i, 4)) > i]
    assert list(means.get_xdata()) == rows
    (line,) = accuracy_over_tasks(settings_lines([record])).axes[0].lines
    assert list(line.get_xdata()) == rows
    publish([record], tmp_path)
    (path,) = tmp_path.rglob("*.jsonl")
    (read,) = read_lines(path)
    assert read.record is not None and as_line(read.record) == as_line(record), read.problem
    table = results_table([record, runs["all"]])
    cells = {row[table.names.index("method")]: row[table.names.index("forgetting")]
             for row in table.rows}  # fmt: skip
    (row,) = (name for name in cells if f"evaluate {evaluate}" in name)
    assert cells[row] == "-"
    assert run_columns([record])["evaluate"] == [evaluate]
