"""A study's picture: a point for each system, one more for its averaged weights."""

import pytest

from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.study.picture import study_figure, winner_figure
from nccl_tf.reports.study.results import read_results
from tests.experiment.study import plans


@pytest.fixture(scope="module")
def axes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("picture")
    cells = plans.cells(folder)
    records = []
    for system, accuracy in (("nccl", 0.8), ("mc_sgd", 0.6)):
        cell = cells["digits", system]
        plans.choose(cell, learning_rate=0.1, **({"delta": 0.1} if system == "nccl" else {}))
        records += [plans.record(cell, seed, accuracy - seed / 5) for seed in cell.seeds]
    plan = read_plan(folder / "study" / "plan.toml")
    figure = study_figure(
        read_results(plan, records)["digits"], [system.name for system in plan.systems]
    )
    return figure.axes[0]


def test_points_stand_at_forgetting_and_accuracy(axes):
    points = [bars.lines[0] for bars in axes.containers]
    places = [(*point.get_xdata(), *point.get_ydata()) for point in points]
    assert places == [pytest.approx((0, 70)), pytest.approx((0, 35)), pytest.approx((0, 60))]
    plain, averaged, other = points
    assert averaged.get_markerfacecolor() == "white" != plain.get_markerfacecolor()
    assert averaged.get_marker() == plain.get_marker() != other.get_marker()


def test_a_line_joins_a_system_and_its_average(axes):
    joined = [line.get_ydata() for line in axes.lines if len(line.get_ydata()) == 2]
    assert any(list(y) == pytest.approx([70, 35]) for y in joined)


def test_bars_are_one_standard_deviation(axes):
    across, upright = (bars.get_segments()[0] for bars in axes.containers[0].lines[2])
    assert across[:, 0] == pytest.approx([0, 0])
    assert upright[:, 1] == pytest.approx([60, 80])


@pytest.mark.parametrize(
    ("accuracy", "drawn", "below"),
    [
        (0.6, {"Merged", "NCCL + Reservoir"}, ""),
        (0.4, {"Merged"}, "\nbelow: NCCL + Reservoir 20.0 %"),
    ],
)
def test_a_system_far_below_the_best_is_named_not_drawn(tmp_path, accuracy, drawn, below):
    """The other one is at 40; averaged weights have half the accuracy."""
    change = "most_trials = 4\n", 'most_trials = 4\nwinner = "mc_sgd"\n'
    cells = plans.cells(tmp_path, change)
    nccl, merged = cells["digits", "nccl"], cells["digits", "mc_sgd"]
    plans.choose(nccl, learning_rate=0.1, delta=0.1)
    plans.choose(merged, learning_rate=0.1)
    records = [plans.record(nccl, seed, accuracy) for seed in nccl.seeds]
    records += [plans.record(merged, seed, 0.4) for seed in merged.seeds]
    plan = read_plan(tmp_path / "study" / "plan.toml")
    figure = winner_figure(plan, read_results(plan, records))
    assert {text.get_text() for text in figure.legends[0].get_texts()} == drawn
    assert figure.axes[0].get_xlabel() == f"forgetting (fraction){below}"
