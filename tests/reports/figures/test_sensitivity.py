"""Which records make a curve of a number, and what the picture draws of them."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.reports.figures.sensitivity import read_curves, sensitivity_figure
from tests.experiment import sample

GIVEN = {"method": "nccl_reservoir", "dataset": "permuted_digits"}


def record(accuracy, seed=0, **given):
    return sample.record(np.tril(np.full((3, 3), accuracy)), seed, **{**GIVEN, **given})


def star():
    """Two seeds of a point, and what lies beside it in two of its numbers."""
    return [
        *(record(0.8 + seed / 10, seed, learning_rate=0.1) for seed in (0, 1)),
        *(record(0.7, seed, learning_rate=0.3) for seed in (0, 1)),
        *(record(0.6, seed, learning_rate=0.03) for seed in (0, 1)),
        *(record(0.9, seed, learning_rate=0.1, dark=1.0) for seed in (0, 1)),
    ]


def test_a_curve_goes_through_what_differs_in_one_number():
    rate, dark = sorted(read_curves(star()), key=lambda curve: -len(curve.values))
    assert (rate.number, rate.values, rate.base) == ("learning_rate", (0.03, 0.1, 0.3), 1)
    mean, std = rate.mean_std("average_accuracy", 100)
    np.testing.assert_allclose(mean, [60, 85, 70])
    np.testing.assert_allclose(std, [0, 5, 0], atol=1e-12)
    # A record leaves an option out that has its default.
    assert (dark.number, dark.values, dark.base) == ("dark", (0.0, 1.0), 0)


def test_of_a_grid_the_best_point_is_the_base():
    grid = [
        record(a, learning_rate=rate, dark=dark)
        for a, rate, dark in ((0.5, 0.1, 0.0), (0.6, 0.1, 1.0), (0.7, 0.3, 0.0), (0.8, 0.3, 1.0))
    ]
    curves = {curve.number: curve for curve in read_curves(grid)}
    for number, value, low in (("learning_rate", 0.3, 60), ("dark", 1.0, 70)):
        curve = curves[number]
        assert (curve.values[curve.base], len(curve.values)) == (value, 2)
        np.testing.assert_allclose(curve.mean_std("average_accuracy", 100)[0], [low, 80])


def test_methods_and_streams_have_curves_of_their_own():
    other = [record(0.5, method="er_reservoir", learning_rate=rate) for rate in (0.1, 0.3)]
    single = [record(0.5, dataset="split_digits", head="single")]
    families = {curve.family for curve in read_curves([*star(), *other, *single])}
    assert families == {
        "NCCL + Reservoir, permuted_digits, single head",
        "ER-Reservoir, permuted_digits, single head",
    }


def test_a_rate_of_the_first_task_follows_the_rate_or_counts():
    later = record(0.5, learning_rate=0.1, first_task_learning_rate=0.2)
    (curve,) = read_curves([record(0.6, learning_rate=0.1), later])
    assert (curve.number, curve.values) == ("first_task_learning_rate", (0.2, None))


def test_what_follows_from_a_number_is_none_of_its_own():
    """The slots of a ring, and what a record of an earlier version does not name."""
    small, large = (record(0.5, method="nccl_ring", memory_per_class=m) for m in (1, 5))
    large["settings"] = {**large["settings"], "angles": None}
    del large["settings"]["hyperparameters"]["grad_scope"]
    (curve,) = read_curves([small, large])
    assert (curve.number, curve.values) == ("memory_capacity", (100, 500))


def test_trials_are_a_family_of_their_own():
    """A trial and a run of the evaluated tasks of the same numbers are no two points of a curve."""
    both = [
        record(0.5, learning_rate=rate, tasks=t) for rate in (0.1, 0.3) for t in ("tuning", None)
    ]
    curves = read_curves(both)
    assert [(curve.number, curve.values) for curve in curves] == [("learning_rate", (0.1, 0.3))] * 2
    evaluated, trials = sorted(curve.family for curve in curves)
    assert trials == f"{evaluated}, trials"
    assert read_curves([each for each in both if each["settings"].get("tasks")])[0].family == (
        evaluated
    )


def test_the_picture_has_a_column_for_each_number():
    figure = sensitivity_figure(star())
    upper, lower = np.reshape(figure.axes, (2, 2))
    assert [axes.get_xlabel() for axes in lower] == ["learning_rate", "dark"]
    assert [axes.get_xscale() for axes in upper] == ["log", "linear"]
    lines = [line.get_ydata() for line in upper[0].lines]
    assert any(np.allclose(y, [60, 85, 70]) for y in lines if len(y) == 3)
    assert [85] in [list(np.round(y, 9)) for y in lines]  # The base, filled.
    assert "over 2 seeds on the evaluated tasks" in " ".join(figure._supxlabel.get_text().split())


def test_averaged_weights_are_dashed_beside_the_others():
    records = [record(0.8, dark=dark, average_weights=0.9) for dark in (0.0, 1.0)]
    lines = sensitivity_figure(records).axes[0].lines
    dashed = [line.get_ydata() for line in lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(dashed, [[40, 40]])


def test_choices_are_drawn_by_their_names():
    given = {"dataset": "split_digits", "head": "single"}
    records = [record(0.8, stream_mask=mask, **given) for mask in ("seen", "all", "present")]
    axes = sensitivity_figure(records).axes[1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["all", "present", "seen"]


def test_records_with_nothing_varied_are_refused():
    with pytest.raises(UserError, match="try values with the command sweep"):
        sensitivity_figure([record(0.8, 0), record(0.7, 1)])
