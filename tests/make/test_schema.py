"""The schema of a record: made from the class, and true of every record that is published."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from docs.make.schema import SCHEMA, as_text, schema

ROOT = Path(__file__).parents[2]


def test_the_schema_of_the_docs_is_up_to_date():
    """`python -m docs.make.schema` writes it."""
    assert SCHEMA.read_text() == as_text()


@pytest.mark.records
def test_every_published_record_is_of_the_schema():
    validator = jsonschema_rs.validator_for(schema())
    files = [*ROOT.glob("results/**/*.jsonl"), *ROOT.glob("studies/*/records/**/*.jsonl")]
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len(lines) >= 1224
    for line in lines:
        validator.validate(json.loads(line))
