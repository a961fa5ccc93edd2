"""What the terminal shows of a run."""

import numpy as np
import pytest

from nccl_tf.reports import terminal
from tests.experiment import sample


@pytest.mark.parametrize("tasks", [1, 20, 40])
def test_matrix_fits_80_columns_and_shows_the_lower_triangle(tasks):
    values = np.ones((tasks, tasks)) if tasks == 40 else sample.matrix(tasks)
    table = terminal.matrix_table(values.tolist())
    assert max(map(len, table.splitlines())) <= terminal.WIDTH
    numbers = [int(w) for line in table.splitlines() for w in line.split() if w.isdigit()]
    heads = sum(len(line.split()) - 1 for line in table.splitlines() if line.startswith("after"))
    assert heads == tasks
    blocks = sum(line.startswith("after") for line in table.splitlines())
    if blocks == 1:
        assert len(numbers) == tasks + tasks + tasks * (tasks + 1) // 2


def test_summary_of_tasks_learned_at_once():
    values = np.full((2, 2), np.nan)
    values[-1] = 0.9, 0.8
    run = sample.record(values, method="multi_task", dataset="split_mnist", num_tasks=5)
    summary = terminal.run_summary(run)
    assert [line.split() for line in summary.splitlines()[3:5]] == [
        ["after", "1", "2"], ["2", "90", "80"],
    ]  # fmt: skip
    assert "average accuracy   85.0 %" in summary
    assert summary.count("undefined: all tasks are learned at once") == 4


def test_averaged_weights_are_told_beside_the_plain_ones():
    values = [[0.8, 0.1], [0.6, 0.8]]
    run, plain = sample.record(values, average_weights=0.9), sample.record(values)
    summary, seeds = terminal.run_summary(run), terminal.seeds_summary([run, run])
    assert "average accuracy   70.0 %" in summary and "  averaged weights 35.0 %" in summary
    assert "  their forgetting 0.100" in summary
    assert "averaged weights   35.0 ± 0.0 %" in seeds and "their forgetting   0.100" in seeds
    for text in (terminal.run_summary(plain), terminal.seeds_summary([plain])):
        assert "averaged" not in text
    one = sample.record([[0.8]], average_weights=0.9)
    assert "  their forgetting undefined" in terminal.run_summary(one)


@pytest.mark.parametrize(
    ("flags", "ending"),
    [
        ({"max_tasks": 2}, "for evaluation, the first 2 of them run"),
        ({"max_tasks": 7}, "for evaluation"),
        ({"max_tasks": 2, "tasks": "tuning"}, "those for tuning, the first 2 of them run"),
        ({"max_tasks": 3, "tasks": "tuning"}, "those for tuning"),
        (
            {"max_tasks": 2, "tasks": "tuning", "tuning_tasks": 0},
            "place of the test images, the first 2 of them run",
        ),
    ],
)
def test_tasks_that_are_not_run_are_counted(flags, ending):
    tasks = flags["max_tasks"]
    run = sample.record(np.ones((tasks, tasks)), **{"num_tasks": 10, "tuning_tasks": 3, **flags})
    assert terminal.task_counts(run).endswith(ending)
