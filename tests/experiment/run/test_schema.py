"""What the schema of a record refuses, and in which words."""

import copy
import json
from importlib import resources

import jsonschema_rs
import pytest

from nccl_tf.experiment.run import schema
from tests.experiment import sample

SCHEMA = json.loads(
    resources.files(schema.__package__).joinpath("record.schema.json").read_text("utf-8")
)


def containers(value) -> list:
    """The objects and lists in a JSON value, itself among them."""
    if not isinstance(value, (dict, list)):
        return []
    parts = list(value.values() if isinstance(value, dict) else value)
    return [value, *(inner for part in parts for inner in containers(part))]


def test_it_is_a_json_schema_and_a_record_fits_it():
    jsonschema_rs.meta.validate(SCHEMA)
    assert schema.schema_problem(sample.record(average_weights=0.9)) == ""


@pytest.mark.parametrize("new", [{"": 1}, [[7]], 2**1024, -(2**1024), float("nan")], ids=range(5))
def test_what_no_record_holds_is_refused_in_every_place(new):
    whole = sample.record(average_weights=0.9)
    places = [
        (number, name)
        for number, container in enumerate(containers(whole))
        for name in (container if isinstance(container, dict) else [0])
    ]
    for number, name in places:
        record = copy.deepcopy(whole)
        containers(record)[number][name] = new
        assert schema.schema_problem(record), (number, name)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("seed", 1.0, "'seed' is 1.0: it is written with a point, expected an integer"),
        ("seed", 2**63, "'seed' is 9223372036854775808: it is past the maximum"),
        ("settings", {}, "'settings.method' is missing"),
        ("versions", {"<b>": "1"}, "a name in 'versions' is not of letters"),
        ("device", "\ud800", "half of a surrogate pair"),
        ("method", "x" * 10**6, "'method' is 'xxxxxxxxxxxx...xxxxxxxxxxxxx': it does not match"),
    ],
)
def test_it_says_where_what_stands_and_what_is_expected(name, value, said):
    problem = schema.schema_problem({**sample.record(), name: value})
    assert problem.startswith(said) and len(problem) < 300


@pytest.mark.parametrize("integer", [2**63, -(2**63), 10**400])
def test_integers_of_more_than_64_bits_stand_nowhere(integer):
    """Not where any number may stand, either; the largest float may."""
    for name in ("eval_seconds", "train_seconds"):
        assert schema.schema_problem({**sample.record(), name: integer})
        assert not schema.schema_problem({**sample.record(), name: 1.7976931348623157e308})
    for name in ("settings", "options"):
        record = sample.record()
        record[name]["new"] = integer
        assert schema.schema_problem(record).startswith(f"'{name}.new' is ")


def test_the_largest_integer_fits():
    assert schema.schema_problem({**sample.record(), "seed": 2**63 - 1}) == ""
