"""The hash of settings, by which a published run is found again."""

import json
import runpy
from pathlib import Path

import pytest

from nccl_tf.methods.registry import METHODS
from nccl_tf.records.settings import flattened, settings_digest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def published():
    """Every published record, those of studies with the methods that they register."""
    before = dict(METHODS)
    for plugin in ("step_sizes/rules.py", "readings/batch_statistics.py"):
        runpy.run_path(str(ROOT / "studies" / plugin))
    files = [*ROOT.glob("results/**/*.jsonl"), *ROOT.glob("studies/*/records/**/*.jsonl")]
    yield [json.loads(line) for path in files for line in path.read_text().splitlines()]
    METHODS.clear()
    METHODS.update(before)


def test_every_published_record_has_the_hash_of_its_settings(published):
    """Whether XLA compiles was a setting of theirs, off in all; a run of today lacks it."""
    assert len(published) >= 1230
    for record in published:
        settings = record["settings"]
        assert settings.get("jit_compile", False) is False
        now = {name: value for name, value in settings.items() if name != "jit_compile"}
        assert settings_digest(settings) == settings_digest(now) == record["settings_hash"]
        assert flattened(settings) == flattened(now)


def test_an_earlier_run_under_xla_is_another_one(published):
    settings = {**published[0]["settings"], "jit_compile": True}
    assert settings_digest(settings) != published[0]["settings_hash"]
    assert flattened(settings)["jit_compile"] is True
