"""The winner beside the other systems: verdicts by hand, and what stands where nothing ran."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.study.picture import winner_figure
from nccl_tf.reports.study.results import read_results
from nccl_tf.reports.study.winner import winner_table
from tests.experiment.study import plans

WINNER = "most_trials = 4\n", 'most_trials = 4\nwinner = "nccl"\n'


@pytest.fixture
def study(tmp_path):
    """The plan with both systems tuned, and its cells by name."""
    cells = plans.cells(tmp_path, WINNER, ("seeds = { digits = [0] }\n", ""))
    for (_, system), cell in cells.items():
        if system != "er_ace":
            plans.choose(cell, learning_rate=0.1, **({"delta": 0.1} if system == "nccl" else {}))
    return read_plan(tmp_path / "study" / "plan.toml"), cells


def runs(cell, *accuracies):
    return [plans.record(cell, seed, accuracy) for seed, accuracy in enumerate(accuracies)]


def test_verdicts_are_counted_and_shown(study):
    plan, cells = study
    records = [
        *runs(cells["digits", "nccl"], 0.80, 0.83), *runs(cells["digits", "mc_sgd"], 0.78, 0.81),
        *runs(cells["heads", "nccl"], 0.60, 0.60), *runs(cells["heads", "mc_sgd"], 0.70, 0.70),
    ]  # fmt: skip
    lines = winner_table(plan, read_results(plan, records)).splitlines()
    assert lines == [
        "| beside | better / level / worse | Digits, 100 slots | Digits with heads |",
        "| --- | --- | --- | --- |",
        "| Merged | 1 / 0 / 1 | better*: +2.0 ± 0.0, +0.000 ± 0.000 | "
        "worse*: -10.0 ± 0.0, +0.000 ± 0.000 |",
    ]


def test_a_setting_that_others_lack_has_no_verdict(study):
    plan, cells = study
    records = [
        *runs(cells["digits", "nccl"], 0.8, 0.8), *runs(cells["heads", "nccl"], 0.6, 0.6),
        *runs(cells["heads", "mc_sgd"], 0.6, 0.6),
    ]  # fmt: skip
    row = winner_table(plan, read_results(plan, records)).splitlines()[2]
    assert row == "| Merged | 0 / 1 / 0 | - | level*: +0.0 ± 0.0, +0.000 ± 0.000 |"


def test_each_setting_has_a_panel_with_the_winner_filled(study):
    plan, cells = study
    records = [
        *runs(cells["digits", "nccl"], 0.8, 0.6), *runs(cells["digits", "mc_sgd"], 0.6, 0.6),
        *runs(cells["heads", "nccl"], 0.5, 0.5),
    ]  # fmt: skip
    figure = winner_figure(plan, read_results(plan, records))
    digits, heads = (axes for axes in figure.axes if axes.axison)
    points = [bars.lines[0] for bars in digits.containers]
    # NCCL by its averaged weights, which have half; the other has none.
    assert [point.get_ydata()[0] for point in points] == pytest.approx([35, 60])
    filled = [point.get_markerfacecolor() != "white" for point in points]
    assert filled == [True, False]
    assert len(heads.containers) == 1
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["NCCL + Reservoir", "Merged"]


def test_without_a_winner_or_its_runs_it_says_so(study, tmp_path):
    plan, _ = study
    with pytest.raises(UserError, match="nccl has no records: run it first"):
        winner_table(plan, read_results(plan, []))
    other = read_plan(plans.write_plan(tmp_path))
    with pytest.raises(UserError, match="names no winner: add winner = NAME"):
        winner_table(other, read_results(other, []))
