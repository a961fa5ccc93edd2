"""The schema of a record, `record.schema.json`, and what in a JSON value does not fit it."""

import functools
import json
import operator
import reprlib
from importlib import resources
from typing import Any

import jsonschema_rs


def schema_problem(record: Any) -> str:
    """What does not fit the schema first, a clause; "" where all does.

    Args:
        record: A JSON value.
    """
    try:
        error = next(_validator().iter_errors(record), None)
    except UnicodeEncodeError:
        return "half of a surrogate pair stands in a text"
    if error is None:
        return ""
    place = ".".join(str(name) for name in error.instance_path)
    if error.kind.name == "required":
        return f"{'.'.join(filter(None, (place, error.kind.value)))!r} is missing"
    if error.kind.name == "propertyNames":
        return f"a name in {place!r} is not of letters, digits and _.+-, or longer than 100"
    received = functools.reduce(operator.getitem, error.instance_path, record)
    message = error.message
    if error.kind.name in ("minimum", "maximum"):
        # The validator writes the largest float with all of its 309 digits.
        message = f"it is past the {error.kind.name} of {error.kind.value}"
    return f"{place!r:.120} is {reprlib.repr(received)}: {message}"


@functools.cache
def _validator() -> jsonschema_rs.Validator:
    text = resources.files(__package__).joinpath("record.schema.json").read_text("utf-8")
    return jsonschema_rs.validator_for(
        json.loads(text), mask="it", keywords={"point": _Point, "bits": _Bits}
    )


class _Point:
    """The keyword `point`, our own: 1.0, an integer to JSON Schema, is none with `false`."""

    def __init__(self, parent_schema: Any, value: bool, schema_path: Any):
        self.allowed = value

    def validate(self, value: Any) -> None:
        if isinstance(value, float) and not self.allowed:
            raise ValueError("it is written with a point, expected an integer")


class _Bits:
    """The keyword `bits`, our own: an integer where any number may stand has no more."""

    def __init__(self, parent_schema: Any, value: int, schema_path: Any):
        self.most = 2 ** (value - 1) - 1

    def validate(self, value: Any) -> None:
        if isinstance(value, int) and not -self.most <= value <= self.most:
            raise ValueError("it is an integer of more bits than expected")


def is_nested(value: Any, levels: int) -> bool:
    """Whether lists and objects of a JSON value lie in each other, more than so many levels."""
    level: list[Any] = [[value]]
    for _ in range(levels + 1):
        level = [
            part.values() if isinstance(part, dict) else part
            for parts in level
            for part in parts
            if isinstance(part, (dict, list))
        ]
    return bool(level)
