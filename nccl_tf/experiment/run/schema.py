"""The schema of a record, `record.schema.json`, and what in a JSON value does not fit it.

The package jsonschema takes a tenth of a second to import, longer than all else that a finished
run has to do. The schema has a few of its keywords, and the tests hold this module to it.
fastjsonschema, which would make a finished run 8 ms longer, lets pass 1.0 as an integer, 2^63 and
a nan, so that a second walk over each record would stay ours.
"""

import functools
import json
import math
import operator
import re
import reprlib
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

_LARGEST = 2**63 - 1
_SHOWN = ("type", "minimum", "maximum", "exclusiveMinimum", "pattern")
_KINDS = {
    bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null",
    list: "array", dict: "object",
}  # fmt: skip
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.ge, "maximum": operator.le,
    "exclusiveMinimum": operator.gt, "exclusiveMaximum": operator.lt,
}  # fmt: skip


def schema_problem(record: Any) -> str:
    """What does not fit the schema first, a clause; "" where all does.

    Args:
        record: A JSON value.
    """
    return _problem(record, _schema(), "", in_list=False)


@functools.cache
def _schema() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("record.schema.json").read_text("utf-8")
    schema = json.loads(text)
    return _inlined(schema, schema["$defs"])


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema with definitions in the place of references."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _inlined(part, definitions) for name, part in schema.items()}
    reference = parts.pop("$ref", "").removeprefix("#/$defs/")
    return {**definitions[reference], **parts} if reference else parts


def _problem(value: Any, schema: Mapping[str, Any], place: str, in_list: bool) -> str:
    """As `schema_problem`, for a part of a record.

    Args:
        value: The part.
        schema: Of the part.
        place: Names that lead to it, joined by dots.
        in_list: Whether it is one of several values in that place.
    """
    if not _fits_alone(value, schema):
        expected = {name: schema[name] for name in schema if name in _SHOWN}
        verb = "holds" if in_list else "is"
        received = f"{reprlib.repr(place)} {verb} {reprlib.repr(value)}"
        return f"{received}, expected {json.dumps(expected)}"
    if type(value) is list and "items" in schema:
        parts = (_problem(part, schema["items"], place, True) for part in _representatives(value))
        return next(filter(None, parts), "")
    return _object_problem(value, schema, place) if type(value) is dict else ""


def _object_problem(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> str:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    names = schema.get("propertyNames", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{_join(place, name)!r} is missing"
    for name, part in value.items():
        problem = _problem(name, names, place, False) or _problem(
            part, known.get(name, others), _join(place, name), False
        )
        if problem:
            return problem
    return ""


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _fits_alone(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value fits, whatever it holds."""
    if "type" not in schema:
        return True
    kind, asked = _KINDS[type(value)], schema["type"]
    types = [asked] if isinstance(asked, str) else asked
    if kind not in types and (kind != "integer" or "number" not in types):
        return False
    if kind == "string":
        return "pattern" not in schema or re.search(schema["pattern"], value) is not None
    if kind not in ("integer", "number"):
        return True
    exists = -_LARGEST <= value <= _LARGEST if kind == "integer" else math.isfinite(value)
    return exists and all(
        fits(value, schema[name]) for name, fits in _BOUNDS.items() if name in schema
    )


def _representatives(values: list[Any]) -> list[Any]:
    """Few values that fit a type and a range exactly where all of them do.

    The rows of a matrix of 400 accuracies would take longer to check than to read.
    """
    numbers = [value for value in values if type(value) in (int, float)]
    # In an order with nan, least and greatest say nothing.
    if len(numbers) < 4 or any(value != value for value in numbers):
        return values
    others = [value for value in values if type(value) not in (int, float, type(None))]
    fraction = [value for value in numbers if type(value) is float][:1]
    return [min(numbers), max(numbers), *fraction, *others, *[None] * (None in values)]


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
