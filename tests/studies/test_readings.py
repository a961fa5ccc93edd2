"""The table of readings, of made records."""

import dataclasses

import pytest

from nccl_tf.commands.paper.published import published
from studies.readings.__main__ import main, readings, table
from tests.experiment import sample


@pytest.fixture
def record():
    """A record of T6, NCCL with a ring of one slot, as printed: 54.6 and 0.059 in the paper."""
    cell = next(c for c in published() if c.table == "T6" and c.method == "nccl_ring")
    settings = cell.settings()
    return dataclasses.replace(
        sample.record(), method="nccl_ring", settings=settings, settings_json=settings.as_json(),
        average_accuracy=0.53, forgetting=0.07,
    )  # fmt: skip


def test_a_reading_is_what_differs(record):
    other = dict(record.settings_json, learning_rate=0.25, first_task_learning_rate=0.25)
    changed = dataclasses.replace(record, settings_json=other)
    at_test = dataclasses.replace(record, method="nccl_ring_bs")
    assert set(readings([record, changed, at_test])) == {
        "as printed", "learning_rate 0.25", "batch statistics at test",
    }  # fmt: skip


def test_what_fits_both_numbers_is_bold(record):
    assert "| as printed | **53.0, 0.070** | - | - | - |" in table([record])
    far = dataclasses.replace(record, forgetting=0.08)
    assert "| as printed | 53.0, 0.080 | - | - | - |" in table([far])
    assert "| as printed | **53.0, 0.070 (2)** | - | - | - |" in table([record, record])


@pytest.mark.records
def test_the_table_of_the_page_is_up_to_date(restored_tables, monkeypatch):
    monkeypatch.setattr("sys.argv", ["readings", "--check"])
    assert main() == 0
