"""Records: what they hold, how they are written and what is refused on reading."""

import json
import pathlib

import jsonschema_rs
import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.records import record as records
from nccl_tf.records.settings import settings_digest
from nccl_tf.reports.record_lines import read_lines
from tests.experiment import sample

NAN = float("nan")
HERE = pathlib.Path(__file__).parent


OF_LATER_RECORDS = (
    "package_modified", "commit_in_history", "tensorfloat32", "xla", "steps_per_program",
    "costs_from_settings", "environment", "compile_cache",
    "data_sha256",
)  # fmt: skip


def written(content, folder):
    return records.write_record(records.Record.from_json(content), folder)


def test_numbers_of_a_hand_made_matrix():
    record = sample.entries([[0.8, 0.2, NAN], [0.9, 0.7, 0.3], [0.6, 0.8, 0.5]], seed=4)
    assert record["accuracy_matrix"] == [[0.8, 0.2, None], [0.9, 0.7, 0.3], [0.6, 0.8, 0.5]]
    assert record["average_accuracy"] == pytest.approx(1.9 / 3)
    assert record["forgetting"] == pytest.approx(((0.9 - 0.6) + (0.7 - 0.8)) / 2)
    assert record["learning_accuracy"] == pytest.approx(2.0 / 3)
    assert record["backward_transfer"] == pytest.approx((-0.2 + 0.1) / 2)
    assert record["forward_transfer"] == pytest.approx((0.1 + 0.2) / 2)
    assert record["undefined"] == {}
    assert (record["num_tasks"], record["tuning_tasks"], record["evaluated_tasks"]) == (10, 0, 3)
    assert record["seed"] == 4


AVERAGED = "averaged_accuracy_matrix"


def test_a_run_with_an_average_has_both_matrices(tmp_path):
    values = [[0.8, 0.2, NAN], [0.9, 0.7, 0.3], [0.6, 0.8, 0.5]]
    record, plain = sample.entries(values, average_weights=0.9), sample.entries(values)
    assert record[AVERAGED] == [[0.4, 0.1, None], [0.45, 0.35, 0.15], [0.3, 0.4, 0.25]]
    for name in ("average_accuracy", "forgetting"):
        assert record[f"averaged_{name}"] == pytest.approx(plain[name] / 2)
        assert record[name] == plain[name]
    assert not any(name.startswith("averaged") for name in plain)
    assert sample.entries([[0.8]], average_weights=0.9)["averaged_forgetting"] is None
    assert records.read_record(written(record, tmp_path)).as_json() == record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"averaged_average_accuracy": 0.5}, r"'averaged_average_accuracy' is 0\.5"),
        ({"averaged_forgetting": None}, "'averaged_forgetting' is None"),
        ({AVERAGED: [[0.5]]}, f"{AVERAGED} is not 3 x 3"),
        ({AVERAGED: [[0.5, 0.5, 7.0]] * 3}, r"\.0\.2' is 7"),
    ],
)
def test_a_record_that_contradicts_its_averaged_matrix_is_refused(change, said):
    record = sample.entries(average_weights=0.9)
    with pytest.raises(UserError, match=said):
        records.checked_record({**record, **change}, "here")
    without = {name: value for name, value in record.items() if name != AVERAGED}
    with pytest.raises(UserError, match="without average_weights in the settings"):
        records.checked_record(without, "here")
    with pytest.raises(UserError, match="without average_weights in the settings"):
        records.checked_record({**sample.entries(), AVERAGED: record[AVERAGED]}, "here")


@pytest.mark.parametrize("one", [b"[],", b"{},", b"0,", b'"":0,'])
def test_very_many_values_are_refused_before_they_are_read(one, tmp_path):
    """Small ones take 30 times their bytes."""
    (tmp_path / "result.json").write_bytes(b"[" + one * 4_000_000 + b"0]")
    with pytest.raises(UserError, match=r"result\.json has [\d,]+ values .* at most 4,000,000"):
        records.read_record(tmp_path / "result.json")
    (tmp_path / "er_ring.jsonl").write_bytes(b"{}\n[" + one * 4_000_000 + b"0]\n")
    (line,) = read_lines(tmp_path / "er_ring.jsonl")
    assert line.record is None and "er_ring.jsonl has" in line.problem


def test_written_and_read_is_the_same(tmp_path):
    record = sample.entries()
    path = written(record, tmp_path / "new" / "folder")
    assert records.read_record(path).as_json() == record
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]
    assert "NaN" not in path.read_text()


def test_nan_is_never_written(tmp_path):
    with pytest.raises(ValueError):
        written({**sample.entries(), "forgetting": NAN}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def changed(**change):
    """A record with other values; those of its settings come with the hash that they have."""
    record = sample.entries()
    if "settings" in change:
        change["settings"] = {**record["settings"], **change["settings"]}
        if "settings_hash" not in change:
            change["settings_hash"] = settings_digest(change["settings"])
    return {**record, **change}


FULL = [[0.5] * 3] * 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "schema_version is 2"),
        ({"seed": True}, "'seed' is True"),
        ({"accuracy_matrix": [[0.5]]}, "3 x 3"),
        ({"accuracy_matrix": [*FULL[1:], [0.5, 87.0, 0.5]]}, r"\.2\.1' is 87"),
        ({"accuracy_matrix": [*FULL[1:], [0.5, None, 0.5]]}, "no accuracy on task 2 after task 3"),
        ({"settings_hash": "0" * 64}, "settings_hash"),
        ({"average_accuracy": 0.99}, r"'average_accuracy' is 0\.99, but the matrix gives 0"),
        ({"forgetting": -0.9}, r"'forgetting' is -0\.9, but the matrix"),
        ({"forgetting": None}, "'forgetting' is None, but the matrix"),
        ({"forward_transfer": 0.9}, "'forward_transfer' is"),
        ({"initial_accuracy": [0.1]}, "not of 3 tasks"),
        ({"initial_accuracy": [0.1, None, 0.1]}, "initial_accuracy has none on task 2"),
        ({"initial_accuracy": [0.1, 1.5, 0.1]}, "expected fractions"),
        ({"undefined": {"forgetting": "so"}}, "'undefined'"),
        ({"method": "er_ring"}, "'method' is 'er_ring', not that of its settings"),
        ({"num_tasks": 23}, "'num_tasks' is 23, not"),
        ({"task_steps": [1, 2]}, "sum of task_steps"),
        ({"train_seconds": -1}, "'train_seconds' is -1"),
        ({"package_modified": "no"}, "'package_modified' is 'no'"),
        ({"commit_in_history": None}, "'commit_in_history' is None"),
        ({"tensorfloat32": None}, "'tensorfloat32' is None"),
        ({"xla": 1}, "'xla' is 1"),
        ({"xla": True}, "'steps_per_program' is there without 'xla', or the reverse"),
        ({"tensorfloat32": True}, "the precision of its settings is 'float32'"),
        ({"settings": {"method": None}, "settings_hash": "0" * 64}, "method"),
        ({"settings": {"hyperparameters": []}, "settings_hash": "0" * 64}, "another kind"),
        ({"settings": {"learning_rate": "0.1"}}, "learning_rate"),
        ({"settings": {"method": "x"}, "settings_hash": "0" * 64}, "unknown method 'x'"),
    ],
)
def test_broken_records(tmp_path, change, said):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(changed(**change)))
    with pytest.raises(UserError, match=said) as error:
        records.read_record(path)
    assert str(path) in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"hidden": [["<b>"], 256]}},
        {"settings": {"hidden": [True]}},
        {"settings": {"memory_slots": {"a": 1}}},
        {"settings": {"augment": ["flip", "<b>"]}},
        {"settings": {"of_a_later_version": [1]}},
        {"settings": {"hyperparameters": {"smoothness": {"a": 1}}}},
        {"settings": {"hyperparameters": {"smoothness": [[1]]}}},
        {"settings": {"hyperparameters": {"new": {"a": 1}}}},
        {"settings": {"hyperparameters": {"\ud800": 1}}},
        {"versions": {"\ud800": "1"}},
        {"undefined": {"\ud800": "so"}},
        {"options": {"threads": [1]}},
        {"options": {"plugins": {"own.py": ["0"]}}},
        {"task_steps": [True, 0]},
        {"learning_rates": [[0.1]]},
        {"initial_accuracy": ["0.1"] * 3},
        {"diagnostics": []},
    ],
)
def test_values_are_checked_as_deeply_as_they_are_used(change):
    with pytest.raises(UserError, match="expected"):
        records.checked_record(changed(**change), "here")


def test_unusual_settings_of_keras_are_read_again(tmp_path):
    record = changed(settings={"keras": "floatx=float64, epsilon=0.1"})
    assert records.read_record(written(record, tmp_path)).as_json() == record


def test_numbers_that_no_file_may_hold_are_refused(tmp_path):
    path = tmp_path / "result.json"
    for number in ("1e999", "NaN", "-Infinity"):
        path.write_text(json.dumps(changed(learning_rates=[0.1] * 3)).replace("0.1,", f"{number},"))
        with pytest.raises(UserError, match="is not JSON"):
            records.read_record(path)


def test_metrics_may_differ_by_their_rounding():
    record = sample.entries()
    record["average_accuracy"] += 1e-15
    assert records.checked_record(record, "here").as_json() == record
    record["average_accuracy"] += 1e-9
    with pytest.raises(UserError, match="the matrix gives"):
        records.checked_record(record, "here")


def test_the_record_of_another_run_is_not_taken(tmp_path):
    settings = resolve({"max_tasks": 3, "num_tasks": 10})
    written(sample.entries(seed=1), tmp_path)
    assert records.read_result(tmp_path, settings, 1).seed == 1
    with pytest.raises(UserError, match="is the record of another run"):
        records.read_result(tmp_path, settings, 0)
    with pytest.raises(UserError, match="is the record of another run"):
        records.read_result(tmp_path, resolve({}), 1)


@pytest.mark.parametrize("name", ["accuracy_matrix", "skipped_steps"])
def test_a_record_that_lacks_something(tmp_path, name):
    record = sample.entries()
    del record[name]
    path = tmp_path / "result.json"
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"'{name}' is missing"):
        records.read_record(path)


@pytest.mark.parametrize("data", [b"[1]", b"\xff\xfe"])
def test_a_file_that_is_no_record(tmp_path, data):
    path = tmp_path / "result.json"
    path.write_bytes(data)
    with pytest.raises(UserError, match="run again"):
        records.read_record(path)


def test_a_record_fits_the_schema_of_the_docs():
    schema = json.loads((HERE.parents[1] / "docs" / "record.schema.json").read_text())
    jsonschema_rs.meta.validate(schema)
    validator = jsonschema_rs.validator_for(schema)
    for record in (sample.entries(), sample.entries(average_weights=0.9)):
        validator.validate(record)
        assert schema["properties"].keys() >= record.keys()
    for odd in ({"seed": "0"}, {"state_sha256": "f"}, {"forgetting": 2}, {"device": "a\nb"}):
        assert not validator.is_valid({**sample.entries(), **odd}), odd
    assert schema["properties"].keys() == {"schema_version", *records.ENTRIES}


@pytest.mark.parametrize(
    "change",
    [
        {"package_modified": None},
        {"package_modified": True},
        {"commit_in_history": False},
        {"tensorfloat32": False},
        {"xla": True, "steps_per_program": 200},
        {"xla": False, "steps_per_program": None},
        {"environment": {}},
        {"environment": {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}},
        {"bytes_stored": 7, "examples_passed": 9, "costs_from_settings": "0" * 40},
    ],
)
def test_what_older_records_lack_may_be_there(change):
    validator = jsonschema_rs.validator_for(
        json.loads((HERE.parents[1] / "docs" / "record.schema.json").read_text())
    )
    older = {k: v for k, v in sample.entries().items() if k not in OF_LATER_RECORDS}
    for record in (older, {**older, **change}):
        validator.validate(record)
        assert records.checked_record(record, "here").as_json() == record
