"""The values that the pictures draw."""

from itertools import pairwise

import numpy as np
import pytest

from nccl_tf.reports.figures import run
from tests.experiment import sample


@pytest.mark.parametrize("tasks", [1, 30])
def test_matrix_colours_trained_tasks_and_writes_all_values(tasks):
    values = sample.matrix(tasks)
    figure = run.accuracy_matrix(sample.record(values))
    axes = figure.axes[0]
    drawn = axes.images[0].get_array()
    lower = np.tril(np.ones((tasks, tasks), bool))
    assert np.array_equal(~np.ma.getmaskarray(drawn), lower)
    np.testing.assert_allclose(drawn[lower], 100 * values[lower])
    written = {text.get_position(): text.get_text() for text in axes.texts}
    expected = {
        (j, i): f"{100 * value:.0f}" for (i, j), value in np.ndenumerate(values) if value == value
    }
    assert written == expected
    low, high = axes.images[0].get_clim()
    assert low <= 100 * values[lower].min() and high == 100


@pytest.mark.parametrize("tasks", [1, 30])
def test_over_time_draws_each_task_and_the_mean(tasks):
    values = sample.matrix(tasks)
    axes = run.accuracy_over_time(sample.record(values)).axes[0]
    *lines, mean = axes.lines
    assert len(lines) == tasks
    for j, line in enumerate(lines):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(j, tasks) + 1)
        np.testing.assert_allclose(line.get_ydata(), 100 * values[j:, j])
    expected = [100 * values[i, : i + 1].mean() for i in range(tasks)]
    np.testing.assert_allclose(mean.get_ydata(), expected)
    looks = [(line.get_color(), line.get_marker()) for line in lines]
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(looks))
    assert [text.get_text() for text in axes.texts] == [str(j + 1) for j in range(tasks)]
    low, high = axes.get_ylim()
    assert low <= 100 * np.nanmin(np.tril(values) + np.triu(np.ones_like(values), 1)) and high > 100


def test_both_fit_across_the_columns_of_a_paper():
    tasks = 23
    record = sample.record(sample.matrix(tasks))
    for figure in (run.accuracy_matrix(record), run.accuracy_over_time(record)):
        assert figure.get_figwidth() <= 6.75
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        assert box.x0 >= -0.01 and box.x1 <= figure.get_figwidth() + 0.01


def joint_record():
    values = np.full((4, 4), np.nan)
    values[-1] = 0.9, 0.8, 0.85, 0.95
    return sample.record(values, method="multi_task", dataset="split_mnist", num_tasks=5)


def test_tasks_learned_at_once_are_one_row_of_the_matrix():
    drawn = run.accuracy_matrix(joint_record()).axes[0].images[0].get_array()
    np.testing.assert_allclose(drawn.compressed(), [90, 80, 85, 95])
    assert not np.ma.getmaskarray(drawn)[-1].any()


def test_tasks_learned_at_once_are_points_at_the_end():
    axes = run.accuracy_over_time(joint_record()).axes[0]
    *lines, mean = axes.lines
    points = [line.get_xydata()[np.isfinite(line.get_ydata())].tolist() for line in lines]
    assert points == [[[4, 90]], [[4, 80]], [[4, 85]], [[4, 95]]]
    assert mean.get_ydata()[-1] == pytest.approx(87.5) and mean.get_marker() == "D"
    assert axes.get_ylim()[0] <= 80
