"""The schema of a record, `record.schema.json`, and what in a JSON value does not fit it."""

import functools
import itertools
import json
import math
import reprlib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

_LARGEST = 2**63 - 1
_SHOWN = ("type", "minimum", "maximum", "exclusiveMinimum", "pattern")


def schema_problem(record: Any) -> str:
    """What does not fit the schema first, a clause; "" where all does.

    Args:
        record: A JSON value.
    """
    error = next(_validator().iter_errors(record), None)
    if error is None:
        return ""
    place = ".".join(str(part) for part in error.absolute_path if isinstance(part, str))
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        return f"{'.'.join(filter(None, (place, missing)))!r} is missing"
    expected = {k: v for k, v in error.schema.items() if k in _SHOWN}
    verb = "holds" if isinstance(error.absolute_path[-1], int) else "is"
    received = f"{reprlib.repr(place)} {verb} {reprlib.repr(error.instance)}"
    return f"{received}, expected {json.dumps(expected)}"


@functools.cache
def _validator() -> Any:
    # Imported late: it takes a tenth of a second.
    import jsonschema

    kind = jsonschema.Draft202012Validator
    checker = kind.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
    text = resources.files(__package__).joinpath("record.schema.json").read_text("utf-8")
    all_items = kind.VALIDATORS["items"]

    def items(validator: Any, schema: Any, values: Any, whole: Any) -> Iterator[Any]:
        if validator.is_type(values, "array"):
            yield from all_items(validator, schema, _representatives(values), whole)

    # `descend` copies the validator for each of the hundred values of a record, which takes longer
    # than all its checks; it is asked about those that are wrong, for its message.
    def fits(validator: Any, schema: Any, value: Any) -> bool:
        return not any(
            next(checks[keyword](validator, expected, value, schema), None)
            for keyword, expected in schema.items()
            if keyword in checks
        )

    def properties(validator: Any, schemas: Any, values: Any, whole: Any) -> Iterator[Any]:
        for name, schema in schemas.items() if validator.is_type(values, "object") else ():
            if name in values and not fits(validator, schema, values[name]):
                yield from validator.descend(values[name], schema, name, name)

    def other_properties(validator: Any, schema: Any, values: Any, whole: Any) -> Iterator[Any]:
        for name, value in values.items() if validator.is_type(values, "object") else ():
            if name not in whole.get("properties", ()) and not fits(validator, schema, value):
                yield from validator.descend(value, schema, name)

    def names(validator: Any, schema: Any, values: Any, whole: Any) -> Iterator[Any]:
        for name in values if validator.is_type(values, "object") else ():
            if not fits(validator, schema, name):
                yield from validator.descend(name, schema)

    ours = {
        "items": items, "properties": properties, "additionalProperties": other_properties,
        "propertyNames": names,
    }  # fmt: skip
    checks = {**kind.VALIDATORS, **ours}
    schema = json.loads(text)
    inlined = _inlined(schema, schema["$defs"])
    return jsonschema.validators.extend(kind, ours, type_checker=checker)(inlined)


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema with definitions in the place of references, which take longer to look up."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _inlined(part, definitions) for name, part in schema.items()}
    reference = parts.pop("$ref", "").removeprefix("#/$defs/")
    return {**definitions[reference], **parts} if reference else parts


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


def _representatives(values: list[Any]) -> list[Any]:
    """Few values that fit a type and a range exactly where all of them do.

    A matrix of 400 accuracies takes the validator longer than reading its record.
    """
    if values and all(type(value) is list for value in values):
        return [_representatives(list(itertools.chain.from_iterable(values)))]
    numbers = [value for value in values if type(value) in (int, float)]
    # In an order with nan, least and greatest say nothing.
    if len(numbers) < 3 or any(value != value for value in numbers):
        return values
    others = [value for value in values if type(value) not in (int, float, type(None))]
    fraction = [value for value in numbers if type(value) is float][:1]
    return [min(numbers), max(numbers), *fraction, *others, *[None] * (None in values)]


def _is_integer(checker: Any, value: Any) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


def _is_number(checker: Any, value: Any) -> bool:
    return _is_integer(checker, value) or (type(value) is float and math.isfinite(value))
