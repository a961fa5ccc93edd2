"""Systems in pairs by seed: the rule, by numbers worked out by hand, and where it stands."""

import dataclasses
import math

import numpy as np
import pytest

from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.study.page import study_page
from nccl_tf.reports.study.pairs import Pair, compare
from nccl_tf.reports.study.results import Result
from tests.experiment.study import plans


def result(cell, *figures, averaged=False):
    """A result whose seeds have these accuracies and forgettings."""
    kind = "averaged_" if averaged else ""
    records = tuple(
        {
            "seed": seed, "average_accuracy": 0.0, "forgetting": 0.0,
            **({"averaged_accuracy_matrix": []} if averaged else {}),
            f"{kind}average_accuracy": accuracy, f"{kind}forgetting": forgetting,
        }
        for seed, (accuracy, forgetting) in enumerate(figures)
    )  # fmt: skip
    return Result(cell, {}, None, records, "", "")


@pytest.fixture
def cell(tmp_path):
    return plans.cells(tmp_path)["digits", "nccl"]


@pytest.mark.parametrize("averaged", [False, True])
def test_differences_are_by_seed(cell, averaged):
    """Accuracy differs by 1, 2 and 3 points: 2 ± 1/sqrt(3); forgetting by 0, 0 and 0.03."""
    first = result(cell, (0.51, 0.1), (0.62, 0.2), (0.73, 0.33), averaged=averaged)
    second = result(cell, (0.5, 0.1), (0.6, 0.2), (0.7, 0.3), averaged=averaged)
    pair = compare(first, second)
    assert dataclasses.astuple(pair) == pytest.approx((0.02, 0.01 / 3**0.5, 0.01, 0.01, 3))
    assert pair.verdict == "better*"
    assert compare(second, first).verdict == "worse*"
    assert compare(first, first).verdict == "level*"


@pytest.mark.parametrize(
    ("accuracy", "forgetting", "verdict"),
    [
        (2.1, 0.0, "better"),
        (2.1, 0.9, "better"),
        (2.1, 1.1, "level"),  # The one figure against the other.
        (1.9, -1.9, "level"),
        (-0.9, -2.1, "better"),
        (-1.1, -2.1, "level"),
        (-2.1, 0.9, "worse"),
        (0.0, 2.1, "worse"),
        (0.0, 0.0, "level"),
    ],
)
def test_the_rule_of_one_and_two_standard_errors(accuracy, forgetting, verdict):
    assert Pair(0.01 * accuracy, 0.01, 0.1 * forgetting, 0.1, 5).verdict == verdict


@pytest.mark.parametrize(("seeds", "in_ten"), [(3, 3), (5, 2)])
def test_how_often_equals_differ(seeds, in_ten):
    """As the page says, at the correlation of the two figures at which it happens most."""
    draws = np.random.default_rng(0)

    def differ(correlation):
        accuracy, other = draws.normal(size=(2, 4000, seeds))
        gains = correlation * accuracy + math.sqrt(1 - correlation**2) * other
        means, errors = (
            [of(part) for part in (accuracy, -gains)]
            for of in (lambda x: x.mean(1), lambda x: x.std(1, ddof=1) / math.sqrt(seeds))
        )
        rows = zip(means[0], errors[0], means[1], errors[1], strict=True)
        return np.mean([Pair(*row, 5).verdict != "level" for row in rows])

    assert round(10 * max(differ(correlation) for correlation in (0, 0.5, 1))) == in_ten


def test_differences_without_scatter_are_level_at_zero_alone():
    assert Pair(0.0, 0.0, 0.0, 0.0, 5).verdict == "level"
    assert Pair(0.01, 0.0, 0.0, 0.0, 5).verdict == "better"


def test_only_common_seeds_count(cell):
    second = result(cell, (0.5, 0.1), (0.6, 0.2))
    assert compare(result(cell, (0.9, 0.0)), second) is None
    assert compare(result(cell, (0.9, 0.0), (0.9, None)), second) is None


def test_the_page_names_whom_all_are_compared_with(tmp_path):
    change = ("most_trials = 4", 'most_trials = 4\ncompared_with = ["nccl"]')
    cells = plans.cells(tmp_path, change, ("seeds = { digits = [0] }\n", ""))
    for (_, system), cell in cells.items():
        if system != "er_ace":
            plans.choose(cell, learning_rate=0.1, **({"delta": 0.1} if system == "nccl" else {}))
    records = [
        plans.record(cells["digits", system], seed, accuracy + seed / 10)
        for system, accuracy in (("nccl", 0.5), ("mc_sgd", 0.6))
        for seed in (0, 1)
    ]
    page = study_page(read_plan(tmp_path / "study" / "plan.toml"), records, {}, "study/plan.toml")
    section = page.split("### Beside NCCL + Reservoir\n")[1]
    # Plain figures, since Merged has no averaged ones.
    row = "| Merged | better*: +10.0 ± 0.0, +0.000 ± 0.000 |"
    assert section.splitlines()[1:4] == ["| system | Digits, 100 slots |", "| --- | --- |", row]
