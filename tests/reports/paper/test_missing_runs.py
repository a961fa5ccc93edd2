"""What the runs that published cells lack would take."""

from pathlib import Path

import pytest

from nccl_tf.reports.costs import by_hash, read_costs
from nccl_tf.reports.paper.missing_runs import FILE_NAME, MissingRuns, hours_text
from nccl_tf.reports.paper.parity import compare, select_cells
from nccl_tf.reports.paper.parity_tables import verdict_table
from nccl_tf.reports.records import find_records
from tests.reports.paper.test_parity import find_cell, record

RESULTS = Path(__file__).parents[3] / "results"


def name_of(cell):
    return cell.settings().digest()[:8]


def test_a_missing_run_has_its_core_hours_in_the_verdict():
    cells = [find_cell("T9", name) for name in ("nccl_ring", "nccl_reservoir", "mer")]
    ring, reservoir, mer = cells
    runs = [record(ring, k, 0.8) for k in range(3)] + [record(mer, 0, 0.8)]
    missing = MissingRuns(runs, {name_of(ring): 9.0, name_of(reservoir): 1.5, name_of(mer): 0.25})
    table = verdict_table("T9", compare(cells, runs), missing)
    assert [row[-1] for row in table.rows] == [
        "differs", "missing: needs a GPU, 1.5 core hours a run",
        "too few seeds: 0.25 core hours a run",
    ]  # fmt: skip
    # Three runs of the reservoir and two of MER, the former for a GPU.
    assert missing.totals(cells) == ("5", "5.0", "3", "4.5")


def test_hours_that_nobody_has_measured_are_not_guessed():
    cell = find_cell("T9", "mer")
    missing = MissingRuns([], {})
    assert missing.note(cell) == "" and missing.totals([cell]) == ("3", "-", "0", "0.00")


def test_a_number_that_no_run_has_is_not_said_to_lack_one():
    cells = [
        find_cell("T1", "multi_task", m, dataset="split_cifar100")
        for m in ("accuracy", "forgetting")
    ]
    missing = MissingRuns([], {name_of(cells[0]): 0.5})
    assert [missing.note(cell) for cell in cells] == [": 0.50 core hours a run", ""]


def test_cells_of_one_run_count_it_once():
    cells = [find_cell("T9", "finetune", metric) for metric in ("accuracy", "forgetting")]
    missing = MissingRuns([], {name_of(cells[0]): 0.5})
    assert missing.totals(cells) == ("3", "1.5", "0", "0.00")


@pytest.mark.parametrize(
    ("hours", "text"), [(0.004, "0.00"), (0.234, "0.23"), (4.46, "4.5"), (31, "31")]
)
def test_hours_have_two_digits_that_count(hours, text):
    assert hours_text(hours) == text


def test_every_missing_run_that_can_be_made_has_its_hours():
    hours = by_hash(read_costs(RESULTS / FILE_NAME))
    missing = MissingRuns(find_records(RESULTS)[0], hours)
    lacking = [cell for cell in select_cells(None) if missing.lacked(cell)]
    unknown = {cell.dataset for cell in lacking if missing.hours(cell) is None}
    assert unknown == {"split_mini_imagenet"}
