"""The fast validator refuses what the schema does, and no more."""

import copy
import json
from importlib import resources

import jsonschema
import pytest

from nccl_tf.experiment.run import schema
from tests.experiment import sample

SCHEMA = json.loads(
    resources.files(schema.__package__).joinpath("record.schema.json").read_text("utf-8")
)
PLAIN = jsonschema.Draft202012Validator(SCHEMA)
VALUES = (None, True, -1, 0.5, "a b", [[7]], {"": 1})


def containers(value) -> list:
    """The objects and lists in a JSON value, itself among them."""
    if not isinstance(value, (dict, list)):
        return []
    parts = list(value.values() if isinstance(value, dict) else value)
    return [value, *(inner for part in parts for inner in containers(part))]


@pytest.mark.parametrize("new", VALUES, ids=range(len(VALUES)))
def test_it_refuses_what_the_schema_refuses(new):
    """A value in each place of a record, and under a name that no record has."""
    whole = sample.record(average_weights=0.9)
    refused = []
    for number, container in enumerate(containers(whole)):
        names = [*container, "new", "<b>"] if isinstance(container, dict) else [0]
        for name in names:
            record = copy.deepcopy(whole)
            containers(record)[number][name] = new
            refused.append(not PLAIN.is_valid(record))
            assert bool(schema.schema_problem(record)) == refused[-1], (number, name)
    assert any(refused) and not all(refused)
