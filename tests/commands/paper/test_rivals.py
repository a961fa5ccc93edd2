"""Numbers of later papers, and the flagfiles that run them."""

import pytest

from nccl_tf.commands.paper.parity import select_cells
from nccl_tf.commands.paper.published import csv_rows
from nccl_tf.commands.paper.rivals import CONTENTS, rivals

ROWS = csv_rows("published_rivals.csv")


def test_every_row_names_where_it_was_read():
    assert ROWS and all(row["source"] and row["page_or_address"] for row in ROWS)
    keys = [tuple(row.values()) for row in ROWS]
    assert len(set(keys)) == len(keys)


def test_a_cell_has_the_number_of_its_row():
    printed = {
        (row["dataset"], int(row["memory_size"]), row["method"]): float(row["mean"])
        for row in ROWS
        if row["metric"] == "accuracy" and row["source"].split()[0] in ("Buzzega", "Caccia")
    }
    assert {cell.table for cell in rivals()} == set(CONTENTS)
    for cell in rivals():
        assert cell.mean == printed[cell.dataset, cell.memory_size or 0, cell.method]


def test_a_standard_error_becomes_a_deviation_of_ten_runs():
    (cell,) = select_cells("ER-ACE", method="er_ace")
    assert (cell.mean, cell.std, cell.seeds) == (25.8, 1.2, 10)  # printed 25.8 and 0.4


@pytest.mark.parametrize("cell", rivals(), ids=lambda cell: cell.flag_file())
def test_settings_are_those_of_the_protocol(cell):
    settings = cell.settings()
    assert (settings.num_tasks, settings.tuning_tasks, settings.epochs) == (20, 0, 1)
    if cell.table == "DER":
        assert (settings.batch_size, settings.hidden, settings.angles) == (128, (100, 100), "any")
        assert settings.examples_per_task == 60_000
        assert settings.memory is None or settings.memory_capacity == {
            200: 200, 500: 400 if settings.memory == "ring" else 500,
        }[cell.memory_size]  # fmt: skip
        assert settings.method == "gem" or settings.memory_batch_size in (None, 128)
    else:
        assert settings.network == "resnet18_reduced" and settings.batch_size == 10
        assert (settings.memory_capacity, settings.memory_batch_size) == (10_000, 10)
