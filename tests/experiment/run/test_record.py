"""Records: what they hold, how they are written and what is refused on reading."""

import json
import pathlib

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run import files
from nccl_tf.experiment.run import record as records
from tests.experiment import sample

NAN = float("nan")


def test_numbers_of_a_hand_made_matrix():
    record = sample.record([[0.8, 0.2, NAN], [0.9, 0.7, 0.3], [0.6, 0.8, 0.5]], seed=4)
    assert record["accuracy_matrix"] == [[0.8, 0.2, None], [0.9, 0.7, 0.3], [0.6, 0.8, 0.5]]
    assert record["average_accuracy"] == pytest.approx(1.9 / 3)
    assert record["forgetting"] == pytest.approx(((0.9 - 0.6) + (0.7 - 0.8)) / 2)
    assert record["learning_accuracy"] == pytest.approx(2.0 / 3)
    assert record["backward_transfer"] == pytest.approx((-0.2 + 0.1) / 2)
    assert record["forward_transfer"] == pytest.approx((0.1 + 0.2) / 2)
    assert record["undefined"] == {}
    assert (record["num_tasks"], record["tuning_tasks"], record["evaluated_tasks"]) == (10, 0, 3)
    assert record["seed"] == 4


def test_what_one_task_leaves_undefined_is_null_with_a_reason():
    record = sample.record([[0.8]])
    assert record["average_accuracy"] == 0.8
    names = {"forgetting", "backward_transfer", "forward_transfer"}
    assert {name for name in record if record[name] is None and name != "commit"} == names
    assert set(record["undefined"]) == names


def test_written_and_read_is_the_same(tmp_path):
    record = sample.record()
    path = records.write_record(record, tmp_path / "new" / "folder")
    assert records.read_record(path) == record
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]
    assert "NaN" not in path.read_text()


def test_a_failed_write_leaves_the_old_record_alone(tmp_path, monkeypatch):
    old = sample.record(seed=1)
    path = records.write_record(old, tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match="No space left"):
        records.write_record(sample.record(seed=2), tmp_path)
    assert records.read_record(path) == old
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_nan_is_never_written(tmp_path):
    with pytest.raises(ValueError):
        records.write_record({**sample.record(), "forgetting": NAN}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--output_dir"):
        records.write_record(sample.record(), tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 99}, "schema_version"),
        ({"seed": "0"}, "'seed'"),
        ({"seed": True}, "'seed'"),
        ({"accuracy_matrix": [[0.5]]}, "3 x 3"),
        ({"accuracy_matrix": [[87.0] * 3] * 3}, "fractions"),
        ({"settings_hash": "0" * 64}, "settings_hash"),
        ({"forgetting": "low"}, "'forgetting'"),
        ({"settings": {"method": None}}, "'method' of its settings is None"),
        ({"settings": {"method": "nccl"}}, "'hyperparameters' of its settings is None"),
        ({"settings": {"method": "x", "hyperparameters": {}}}, "unknown method 'x'"),
    ],
)
def test_broken_records(tmp_path, change, said):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**sample.record(), **change}))
    with pytest.raises(UserError, match=said) as error:
        records.read_record(path)
    assert str(path) in str(error.value)


def test_records_of_every_earlier_schema_are_read():
    """A file of each version lies beside this one; what a version lacks is None."""
    folder = pathlib.Path(__file__).parent
    for version in range(1, records.SCHEMA_VERSION):
        record = records.read_record(folder / f"result_v{version}.json")
        assert record["schema_version"] == version
        assert record.keys() == sample.record().keys()
    first = records.read_record(folder / "result_v1.json")
    assert first["state_sha256"] is None and first["average_accuracy"] > 0


@pytest.mark.parametrize("name", ["method", "accuracy_matrix", "commit", "steps", "skipped_steps"])
def test_a_record_that_lacks_something(tmp_path, name):
    record = sample.record()
    del record[name]
    path = tmp_path / "result.json"
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"'{name}' is missing"):
        records.read_record(path)


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_file_that_is_no_record(tmp_path, data):
    path = tmp_path / "result.json"
    path.write_bytes(data)
    with pytest.raises(UserError, match="run again"):
        records.read_record(path)


def test_run_folder():
    settings = resolve({})
    folder = records.run_folder(settings, "runs", 3)
    assert folder.parts == (
        "runs", "permuted_digits-single", "nccl_ring", settings.digest()[:8], "seed3",
    )  # fmt: skip


def test_sample_is_shaped_as_a_run_fills_it():
    assert np.isnan(sample.matrix(4)).sum() == 3
