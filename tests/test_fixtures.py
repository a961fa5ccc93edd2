"""Files that an earlier version wrote are read."""

import json
from pathlib import Path

import pytest
from absl import flags

from nccl_tf.experiment.config.flags import define_flags, parse_flags, read_flag_values
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.config.settings import flattened
from nccl_tf.experiment.run.record import read_record
from nccl_tf.experiment.run.run_file import settings_to_resume

FIXTURES = Path(__file__).parent / "fixtures"


def given_by(name: str) -> dict:
    values = flags.FlagValues()
    define_flags(values)
    parse_flags(values, ["run.py", f"--flagfile={FIXTURES / 'flags' / name}"])
    return {name: value for name, value in read_flag_values(values).items() if value is not None}


@pytest.mark.parametrize(("version", "brought"), [(1, False), (2, True)])
def test_records_of_both_schemas_are_read(version, brought):
    path = FIXTURES / "records" / f"schema{version}.json"
    record, written = read_record(path), json.loads(path.read_text())
    assert record["schema_version"] == version
    assert (record["state_sha256"] is not None) == brought
    assert (record["skipped_steps"] is not None) == brought
    assert {name: record[name] for name in written} == written


def test_the_flags_of_a_published_cell_are_read():
    given = given_by("cell.flags")
    assert given == {
        "method": "nccl_ring", "dataset": "permuted_mnist", "head": "single", "num_tasks": 23,
        "examples_per_task": 60000, "network": "mlp", "hidden": (256, 256), "memory_per_class": 5,
    }  # fmt: skip
    assert resolve(given).digest()[:8] == "389a5068"  # names the folder of its runs


def test_the_flags_of_a_grid_are_read():
    given = given_by("grid.flags")
    (sweep,) = given.pop("sweep")
    assert given == {"method": "nccl_reservoir"}
    assert tuple(sweep) == ("learning_rate", (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0))


def test_the_file_of_a_run_is_read():
    settings, seed, _ = settings_to_resume(FIXTURES / "run", {})
    assert seed == 3
    written = json.loads((FIXTURES / "run" / "run.json").read_text())["settings"]
    # A setting that came later is off, a hyperparameter at its first default.
    now = flattened(settings.as_json())
    assert {name: value for name, value in now.items() if value is not None} == {
        name: value for name, value in flattened(written).items() if value is not None
    }
    assert settings.digest()[:8] == "b542f8e7"  # names the folder it lay in
