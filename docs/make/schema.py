"""The schema of a record, docs/record.schema.json, made from `Record` and `Settings`.

`python -m docs.make.schema` writes it.
"""

import json
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from docs.make.generated_files import print_file_status, put_text, read_text
from nccl_tf.arguments.names import NAME
from nccl_tf.records.record import ENTRIES, EVERY_RUN_HAS, PLAIN, SCHEMA_VERSION, SETTING_KINDS
from nccl_tf.records.settings import SETTINGS

SCHEMA = Path(__file__).parents[1] / "record.schema.json"

_LARGEST = 2**63 - 1
_NUMBER = 1.7976931348623157e308
_END = r"(?![\s\S])"  # "$" would let a newline follow
_KINDS: dict[str, dict[str, Any]] = {
    "null": {"type": "null"},
    "switch": {"type": "boolean"},
    "name": {"type": "string", "pattern": f"^{NAME.pattern}{_END}"},
    "text": {"type": "string", "pattern": rf"^[^\x00-\x1f\x7f]{{0,500}}{_END}"},
    "integer": {"type": "integer", "minimum": 0, "maximum": _LARGEST},
    "number": {"type": "number", "minimum": 0, "maximum": _NUMBER},
    "metric": {"type": "number", "minimum": -_NUMBER, "maximum": _NUMBER},
    "fraction": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    "object": {"type": "object"},
    "list": {"type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/fraction"}}},
}


def schema() -> dict[str, Any]:
    """The schema as JSON values (https://json-schema.org/draft/2020-12)."""
    properties: dict[str, Any] = {
        "schema_version": {
            "const": SCHEMA_VERSION, "description": "A record of another version is not read.",
        }
    }  # fmt: skip
    for name, entry in ENTRIES.items():
        about = entry.metadata["about"]
        described = {"description": about} if about else {}
        properties[name] = _of(entry.metadata["kinds"], **entry.metadata["bounds"]) | described
    properties["settings"] = _settings()
    properties["options"] = _values(PLAIN, "How it was run; nothing of it changes the results.") | {
        "properties": {"plugins": _values("text", "SHA-256 of each plugin's source, by its name.")}
    }
    properties["versions"] = _values(
        "text|null", "Of Python and the packages; null where not installed."
    )
    properties["environment"] = _values("text", ENTRIES["environment"].metadata["about"])
    properties["undefined"] = _values("text|null", "Why a metric is null, by its name.")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The record of a run: result.json, or a line of published records",
        "description": (
            "Fractions are between 0 and 1, times in seconds. A number is finite; an integer is "
            "written as one and fits into 64 bits. Beyond this schema a record is checked against "
            "itself: the metrics against the matrix, the names against the settings, the hash "
            "against the settings."
        ),
        "$defs": _KINDS,
        "type": "object",
        "required": [
            "schema_version",
            *(
                name
                for name, entry in ENTRIES.items()
                if entry.default is entry.default_factory is MISSING
            ),
        ],
        "properties": properties,
    }  # fmt: skip


def _of(kinds: str, **bounds: float) -> dict[str, Any]:
    """The schema of a value of some kinds, such as "integer|null", within bounds."""
    parts = [_of_kind(kind, bounds) for kind in kinds.split("|")]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _of_kind(kind: str, bounds: dict[str, float]) -> dict[str, Any]:
    if kind in _KINDS:
        own = bounds if kind in ("integer", "number", "metric", "text") else {}
        return {"$ref": f"#/$defs/{kind}", **own}
    return {"type": "array", "items": _of_kind(kind.removesuffix("s"), bounds)}


def _values(kinds: str, about: str) -> dict[str, Any]:
    """An object of values of some kinds by name."""
    return {
        "type": "object", "description": about, "propertyNames": _of("text"),
        "additionalProperties": _of(kinds),
    }  # fmt: skip


def _settings() -> dict[str, Any]:
    properties = {}
    for name, kinds in SETTING_KINDS.items():
        needed = kinds if name in EVERY_RUN_HAS or "null" in kinds else f"{kinds}|null"
        about = SETTINGS[name].help if name in SETTINGS else ""
        properties[name] = _of(needed) | ({"description": about} if about else {})
    properties["hyperparameters"] = _values(PLAIN, "The method's own numbers by name.")
    about = "Every setting, as JSON values; what does not exist for the method is null."
    return _values(PLAIN, about) | {
        "required": [*EVERY_RUN_HAS, "hyperparameters"], "properties": properties,
    }  # fmt: skip


def as_text() -> str:
    """The content of `SCHEMA`."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    before = read_text(SCHEMA)
    print_file_status(SCHEMA, put_text(SCHEMA, before, as_text(), check=False), check=False)
