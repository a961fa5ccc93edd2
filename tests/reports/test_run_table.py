"""A row for each run, with numbers as numbers."""

import csv
import io
import sys

import numpy as np
import pandas
import pyarrow.parquet
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.records.record import Record, write_record
from nccl_tf.reports.run_table import as_csv, as_parquet, mean_columns, run_columns
from tests.experiment import sample


@pytest.fixture
def records():
    """NCCL with averaged weights, fine-tuning, a joint method, and a trial of a sweep."""
    return [
        sample.record([[0.9, 0.1], [0.7, 0.95]], seed=3, method="nccl_ring", average_weights=0.9),
        sample.record(method="finetune", hidden=[8, 9]),
        sample.record([[np.nan, np.nan], [0.5, 0.25]], method="multi_task"),
        sample.record([[0.123]], method="nccl_ring", tasks="tuning"),
    ]


def test_a_row_for_each_run(records):
    columns = run_columns(records)
    assert {len(values) for values in columns.values()} == {4}
    assert columns["method"] == ["nccl_ring", "finetune", "multi_task", "nccl_ring"]
    assert columns["tasks"] == ["evaluated"] * 3 + ["tuning"]
    for name in ("average_accuracy", "forgetting", "steps", "settings_hash", "seed"):
        assert columns[name] == [getattr(record, name) for record in records]
    assert columns["averaged_forgetting"][1:] == [None] * 3
    assert columns["smoothness"] == [1.0, None, None, 1.0]
    assert columns["hidden"][1] == "8,9"
    assert columns["keras_version"] == [records[0].versions["keras"]] * 4
    assert "er_weighting" not in columns  # No run has it.


def test_means_are_of_the_seeds_of_a_settings_with_the_sample_deviation(records):
    matrices = [[[0.9, 0.1], [0.7, 0.8]], [[0.8, 0.1], [0.6, 0.7]], [[0.7, 0.1], [0.2, 0.6]]]
    seeds = [sample.record(values, k, method="derpp") for k, values in enumerate(matrices)]
    columns = mean_columns([*records, *seeds])
    row = columns["method"].index("derpp")
    of_row = {name: values[row] for name, values in columns.items()}
    accuracies = [0.75, 0.65, 0.4]
    assert of_row["title"] == "DER++" and of_row["seeds"] == 3 and of_row["memory_capacity"] == 500
    assert of_row["average_accuracy_mean"] == pytest.approx(np.mean(accuracies))
    assert of_row["average_accuracy_std"] == pytest.approx(np.std(accuracies))
    assert of_row["forgetting_mean"] == pytest.approx((0.2 + 0.2 + 0.5) / 3)
    assert of_row["averaged_forgetting_mean"] is None
    assert len(columns["seeds"]) == 4  # Without the trial of the sweep.
    joint = columns["method"].index("multi_task")
    assert columns["forgetting_mean"][joint] is None
    assert columns["average_accuracy_std"][joint] is None


def test_a_record_without_xla_ran_without_it(records):
    older = {name: value for name, value in records[0].as_json().items() if name != "xla"}
    records[0] = Record.from_json(older)
    records[1] = sample.changed(records[1], xla=True, steps_per_program=50)
    columns = run_columns(records)
    assert columns["xla"] == [False, True, False, False]
    assert columns["steps_per_program"] == [None, 50, None, None]


def test_csv_gives_the_numbers_back_to_the_bit(records):
    rows = list(csv.DictReader(io.StringIO(as_csv(run_columns(records)))))
    for row, record in zip(rows, records, strict=True):
        assert float(row["average_accuracy"]) == record.average_accuracy
        assert row["seed"] == str(record.seed)
        forgetting = float(row["forgetting"]) if row["forgetting"] else None
        assert forgetting == record.forgetting
        assert not any("±" in cell or "`" in cell for cell in row.values())


def test_parquet_and_frame_have_the_same_values(records, tmp_path):
    columns = run_columns(records)
    (tmp_path / "runs.parquet").write_bytes(as_parquet(columns))
    table = pyarrow.parquet.read_table(tmp_path / "runs.parquet")
    assert table.to_pydict() == columns
    for number, record in enumerate(records):
        write_record(record, tmp_path / str(number))
    frame = nccl_tf.read_results(tmp_path)
    assert isinstance(frame, pandas.DataFrame) and list(frame) == list(columns)
    assert frame["average_accuracy"].tolist() == columns["average_accuracy"]
    assert (frame.dtypes["forgetting"], frame.dtypes["steps"]) == ("float64", "int64")
    assert frame["memory_capacity"].isna().tolist() == [False, True, True, False]
    assert frame.dtypes["memory_capacity"] == "Int64"


def test_whole_numbers_beside_others_are_floats(records):
    rates = [
        sample.changed(one, train_seconds=seconds)
        for one, seconds in zip(records, (1, 2.5, 3, 4), strict=True)
    ]
    assert list(map(type, run_columns(rates)["train_seconds"])) == [float] * 4


def test_broken_records_are_warned_of(records, tmp_path):
    write_record(records[0], tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "result.json").write_text("{")
    with pytest.warns(UserWarning, match="left out: .*b/result.json is not JSON"):
        assert len(nccl_tf.read_results(tmp_path)) == 1
    with pytest.raises(UserError, match="expected a folder of finished"):
        nccl_tf.read_results(tmp_path / "none")


@pytest.mark.parametrize(
    ("package", "use"),
    [("pandas", lambda: nccl_tf.read_results(".")), ("pyarrow", lambda: as_parquet({"a": [1]}))],
)
def test_a_package_that_is_missing(monkeypatch, package, use):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=f"pip install {package}"):
        use()
