"""What runs of a study measured: figures worked out by hand, and where they stand."""

import pytest

from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.study.measures import measures_sections
from nccl_tf.reports.study.page import study_page
from nccl_tf.reports.study.results import Result
from tests.experiment.study import plans
from tests.reports.figures import diagnostics_sample

NUMBERS = (
    "sum of Γ", "|B|", "|e| / |F|", "|u f| / |F|", "u", "largest u", "earlier loss",
    "loss of all", "bound broken", "seeds",
)  # fmt: skip


def end(norm, draws, bound, gamma=0.0, losses=(0.5, 0.7)):
    """The end of a task: |F|, (alpha_H, B, slope of B, |e|^2) of each draw, the step bound."""
    names = ("alpha_h", "overfitting", "overfitting_slope", "error_squared")
    columns = [list(column) for column in zip(*draws, strict=True)]
    return {
        "gamma_surrogate": gamma, "alpha": 0.1, "step_bound": bound,
        "previous": {"gradient_norm": norm, "loss": losses[0]}, "seen": {"loss": losses[1]},
        "draws": dict(zip(names, columns, strict=True)) if draws else None,
    }  # fmt: skip


@pytest.fixture
def cells(tmp_path):
    return plans.cells(tmp_path)


def table(cells, *runs):
    """The row of NCCL whose records have these ends of tasks, by the names of columns."""
    cell = cells["digits", "nccl"]
    records = tuple({"diagnostics": {"tasks": list(ends)}} if ends else {} for ends in runs)
    result = Result(cell, {}, None, records, "", "")
    parts = list(measures_sections(cell.plan, {"digits": [result], "heads": []}))
    if not parts:
        return {}
    heading, _, setting, text = parts
    assert heading.startswith("## ") and setting == "### Digits, 100 slots"
    names, _, row = (
        [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")]
        for line in text.splitlines()
    )
    assert names == ["system", *(name.replace("|", "/") for name in NUMBERS)]
    return dict(zip(NUMBERS, row[1:], strict=True))


def test_figures_of_two_steps_by_hand(cells):
    """|F| = 2; e is (1, 0) along F = (2, 0), then (0, 2): |f_I| is 3, and the root of 8."""
    draws = [(0.1, 0.5, 0.1**2 * 2, 1.0), (0.3, -1.5, 0.0, 4.0)]
    first = end(0.0, [], None)
    last = end(2.0, draws, 3.9, gamma=12.34, losses=(0.25, 0.5))
    assert table(cells, [first, last]) == {
        "sum of Γ": "12.3", "|B|": "1.000", "|e| / |F|": "0.8",  # (1 + 2)/2/2
        "|u f| / |F|": "2.9",  # (3 + 3 sqrt(8))/2/2
        "u": "2.00", "largest u": "3.00", "earlier loss": "0.250", "loss of all": "0.500",
        "bound broken": "1 of 1", "seeds": "1",
    }  # fmt: skip


def test_a_weight_of_zero_has_no_length(cells):
    draws = [(0.0, 0.0, 0.0, 1.0), (0.1, 0.0, 0.0, 0.0)]
    figures = table(cells, [end(1.0, draws, None)])
    assert (figures["|u f| / |F|"], figures["bound broken"]) == ("0.5", "0 of 0")


def test_seeds_are_averaged_and_others_left_out(cells):
    draws = [(0.1, 0.1, 0.0, 1.0)]
    runs = ([end(1.0, draws, 1.0, gamma=gamma)] for gamma in (1.0, 2.0))
    figures = table(cells, *runs, [])
    assert (figures["sum of Γ"], figures["bound broken"], figures["seeds"]) == (
        "1.5", "0 of 2", "2",
    )  # fmt: skip
    assert table(cells, []) == {}


def test_a_run_without_a_memory_to_draw_from_has_no_row(cells):
    """As joint training, and a run of one task: no task has ended before theirs."""
    alone = [end(None, [], None, losses=(None, 0.7))]
    assert table(cells, alone) == {}
    measured = [end(1.0, [(0.1, 0.1, 0.0, 1.0)], 1.0)]
    assert table(cells, alone, measured)["seeds"] == "1"


def test_the_page_shows_what_records_measured(tmp_path, cells):
    cell = cells["digits", "nccl"]
    plans.choose(cell, learning_rate=0.1, delta=0.1)
    measured = plans.record(cell, 0, 0.5)
    measured["diagnostics"] = diagnostics_sample.record()["diagnostics"]
    plan = read_plan(tmp_path / "study" / "plan.toml")
    page = study_page(plan, [measured], {}, "plan.toml")
    assert page.index("## What the paper's quantities say") < page.index("\n## Digits, 100 slots")
    assert "quantities" not in study_page(plan, [plans.record(cell, 0, 0.5)], {}, "plan.toml")
