"""The record of a finished run: result.json, written whole or not at all, checked on reading."""

import json
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from nccl_tf.arguments.evaluated import ALL, tasks_to_evaluate
from nccl_tf.arguments.names import NAME
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS, get_method
from nccl_tf.records.files import write_file
from nccl_tf.records.settings import Settings, settings_digest
from nccl_tf.records.summary import AVERAGED, averaged_numbers, summarize
from nccl_tf.regular_files import read_regular

SCHEMA_VERSION = 1
FILE_NAME, MODEL_NAME, CHECKPOINTS = "result.json", "model.keras", "checkpoints"
MAX_BYTES = 2**26
"""The largest file of records that is read."""

_KINDS = {
    "method": "name", "dataset": "name", "head": "name", "seed": "integer",
    "num_tasks": "integer", "tuning_tasks": "integer", "evaluated_tasks": "integer",
    "settings": "object", "settings_hash": "text", "options": "object", "versions": "object",
    "commit": "name|null", "accuracy_matrix": "list", "initial_accuracy": "numbers",
    "average_accuracy": "metric|null", "forgetting": "metric|null",
    "learning_accuracy": "metric|null", "backward_transfer": "metric|null",
    "forward_transfer": "metric|null", "undefined": "object", "learning_rates": "numbers",
    "parameters": "integer", "train_seconds": "number", "compile_seconds": "number",
    "eval_seconds": "number", "steps": "integer", "task_steps": "integers|null",
    "peak_memory_bytes": "integer|null", "state_sha256": "text|null",
    "skipped_steps": "integer|null", "device": "text|null", "replicas": "integer",
}  # fmt: skip
_OPTIONAL_KINDS = {
    "package_modified": "switch|null", "commit_in_history": "switch", "tensorfloat32": "switch",
    "xla": "switch", "steps_per_program": "integer|null", "diagnostics": "object",
}  # fmt: skip
"""Of entries that older records lack."""
_OF_TYPES = {
    str: "name", int: "integer", float: "number", bool: "switch", NoneType: "null",
    tuple[int, ...]: "integers", tuple[str, ...]: "names",
}  # fmt: skip
_SETTING_KINDS = {
    name: "|".join(_OF_TYPES[kind] for kind in ([hint] if hint in _OF_TYPES else get_args(hint)))
    for name, hint in get_type_hints(Settings).items()
    if name != "hyperparameters"
} | {"keras": "text|null"}
_EVERY_RUN_HAS = (
    "method", "dataset", "head", "num_tasks", "tuning_tasks", "max_tasks", "batch_size", "epochs",
    "learning_rate",
)  # fmt: skip
_PLAIN = "name|metric|switch|null"
"""The kinds of a value that has no kind of its own, such as a hyperparameter."""
_ROUNDING = 1e-12
"""By how much a metric may differ from that of the matrix: sums in another order."""
_ADVICE = "restore it, or delete it and run again"


def run_folder(settings: Settings, output_dir: str, seed: int) -> Path:
    """`<output_dir>/<dataset>-<head>/<method>/<first 8 digits of the hash>/seed<k>`.

    Of a data set by name, such as "folder:pets", the folder is that of "folder_pets", because
    Windows has no colons in names.
    """
    dataset = settings.dataset.replace(":", "_")
    cell = Path(output_dir) / f"{dataset}-{settings.head}" / settings.method
    return cell / settings.digest()[:8] / f"seed{seed}"


def write_record(record: Mapping[str, Any], folder: Path) -> Path:
    """Write result.json into `folder`, so that a reader sees the whole of it or none.

    Raises:
        UserError: The folder cannot be written.
        ValueError: A number is nan or infinite.
    """
    path = folder / FILE_NAME
    write_file(path, record_bytes(record))
    return path


def record_bytes(record: Mapping[str, Any]) -> bytes:
    """The content of result.json.

    Raises:
        ValueError: A number is nan or infinite.
    """
    return (json.dumps(record, indent=1, allow_nan=False) + "\n").encode()


def read_record(path: Path) -> dict[str, Any]:
    """Read and validate a result.json.

    Raises:
        UserError: The file cannot be read, is of another schema or none, or contradicts itself.
    """
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): {_ADVICE}") from error
    return check_record(parse_json(data, str(path)), str(path))


def read_result(folder: Path, settings: Settings, seed: int) -> dict[str, Any]:
    """The record of a run that is finished in its folder.

    Args:
        folder: The run's folder.
        settings: Of the run.
        seed: Of the run.

    Raises:
        UserError: As `read_record`, and where it is the record of another run.
    """
    record = read_record(folder / FILE_NAME)
    if (record["settings_hash"], record["seed"]) != (settings.digest(), seed):
        raise UserError(
            f"{folder / FILE_NAME} is the record of another run (seed {record['seed']}, settings "
            f"{record['settings_hash'][:8]}; expected seed {seed}, {settings.digest()[:8]}): move "
            "it to its folder, or run this one again with --overwrite"
        )
    return record


def parse_json(data: bytes, place: str, advice: str = _ADVICE) -> Any:
    """The value of a JSON text.

    Args:
        data: The text.
        place: Where it stands, for the message.
        advice: What to do where it is no JSON, for the message.

    Raises:
        UserError: It is no JSON, or holds a number that JSON does not have (NaN, Infinity).
    """
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinite.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place} is not JSON ({error}): {advice}") from error
    return value


def check_record(record: Any, place: str, advice: str = _ADVICE) -> dict[str, Any]:
    """Validate a JSON value as a record.

    Args:
        record: The value.
        place: Where it stands, for the message.
        advice: What to do where it is no record, for the message.

    Returns:
        The record.

    Raises:
        UserError: It is of another schema or none, or contradicts itself.
    """
    problem = _version_problem(record)
    if not problem and isinstance(record.get("method"), str) and record["method"] not in METHODS:
        raise UserError(
            f"{place} is of the unknown method {reprlib.repr(record['method'])}: to read it, name "
            "the plugin that registers the method with --plugin"
        )
    problem = problem or _problem(record)
    if problem:
        raise UserError(f"{place} is not a record of a run: {problem}; {advice}")
    return record


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _version_problem(record: Any) -> str:
    if not isinstance(record, dict):
        return f"received a {type(record).__name__}, expected an object"
    version = record.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        return f"schema_version is {reprlib.repr(version)}, expected {SCHEMA_VERSION}"
    return ""


def _problem(record: Mapping[str, Any]) -> str:
    """The first problem of a record, as a clause; "" if it is consistent."""
    try:
        return _kind_problem(record) or _hash_problem(record) or _contradiction(record)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        return f"a value is of another kind than expected ({type(error).__name__}: {error})"


def _kind_problem(record: Mapping[str, Any]) -> str:
    """The first value that is missing or has the wrong type, as a clause; "" if there is none.

    `docs/record.schema.json` describes all of them; here are those that are read again.
    """
    for name, expected in _KINDS.items():
        if name not in record:
            return f"{name!r} is missing"
        if not _is(record[name], expected):
            return _odd(name, record[name], expected)
    for name, expected in _OPTIONAL_KINDS.items():
        if name in record and not _is(record[name], expected):
            return _odd(name, record[name], expected)
    settings = record["settings"]
    for name, expected in _SETTING_KINDS.items():
        needed = expected if name in _EVERY_RUN_HAS else f"{expected}|null"
        if not _is(settings.get(name), needed):
            return _odd(f"settings.{name}", settings.get(name), needed)
    others = {
        name: value
        for name, value in settings.items()
        if name not in {"hyperparameters", *_SETTING_KINDS}
    }
    options = {name: value for name, value in record["options"].items() if name != "plugins"}
    parts = {
        "settings": (others, _PLAIN),
        "settings.hyperparameters": (settings["hyperparameters"], _PLAIN),
        "options": (options, _PLAIN),
        "options.plugins": (record["options"].get("plugins", {}), "text"),
        "versions": (record["versions"], "text|null"),
        "undefined": (record["undefined"], "text|null"),
    }
    for place, (values, expected) in parts.items():
        for name, value in values.items():
            if not _is(name, "text"):
                return f"a name in {place!r} is {reprlib.repr(name)}, expected a short text"
            if not _is(value, expected):
                return _odd(f"{place}.{name:.40}", value, expected)
    for name in {"accuracy_matrix", AVERAGED} & record.keys():
        for i, j, value in (
            (i, j, value) for i, row in enumerate(record[name]) for j, value in enumerate(row)
        ):
            if value is not None and not (_is(value, "number") and 0 <= value <= 1):
                return f"'{name}.{i}.{j}' is {reprlib.repr(value)}, expected a fraction"
    return ""


def _odd(place: str, value: Any, expected: str) -> str:
    return f"{place!r} is {reprlib.repr(value)}, expected {expected.replace('|', ' or ')}"


def _is(value: Any, expected: str) -> bool:
    """Whether a value is of one of the kinds, such as "integer|null"; only a metric is negative."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    number = number and not (isinstance(value, int) and abs(value) >= 2**63)
    kinds = {
        "null": value is None,
        "switch": isinstance(value, bool),
        "text": isinstance(value, str) and len(value) <= 500 and value.isprintable(),
        "name": isinstance(value, str) and bool(NAME.fullmatch(value)),
        "integer": number and isinstance(value, int) and value >= 0,
        "number": number and value >= 0,
        "metric": number,
        "list": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    return any(
        kinds[kind] if kind in kinds else isinstance(value, list) and _all_are(value, kind)
        for kind in expected.split("|")
    )


def _all_are(values: Sequence[Any], kinds: str) -> bool:
    """Whether all of a list are of a kind, in the plural, such as "integers"."""
    return all(_is(value, kinds.removesuffix("s")) for value in values)


def _hash_problem(record: Mapping[str, Any]) -> str:
    try:
        digest = settings_digest(record["settings"])
    except UserError:
        return f"its settings are of no run: unknown method {record['settings']['method']!r}"
    return "" if digest == record["settings_hash"] else "settings_hash is not that of the settings"


def _unmeasured(rows: Sequence[Sequence[Any]], settings: Mapping[str, Any]) -> str:
    """Where an accuracy is missing that a run with these settings measures, "" where none is."""
    evaluate, count = settings.get("evaluate") or ALL, len(rows)
    joint = get_method(settings["method"]).joint
    for i in range(count - 1 if joint else 0, count):
        for j in tasks_to_evaluate(evaluate, i, count):
            if rows[i][j] is None:
                return f"on task {j + 1} after task {i + 1}"
    return ""


def _contradiction(record: Mapping[str, Any]) -> str:
    """Values that the record states twice and differently."""
    settings, tasks = record["settings"], record["evaluated_tasks"]
    again = {name: name for name in ("method", "dataset", "head", "num_tasks", "tuning_tasks")}
    for name, of_settings in {**again, "evaluated_tasks": "max_tasks"}.items():
        if record[name] != settings[of_settings]:
            return f"{name!r} is {record[name]!r}, not that of its settings"
    if record.get("tensorfloat32") and settings.get("precision") == "float32":
        return "'tensorfloat32' is True, but the precision of its settings is 'float32'"
    if (record.get("steps_per_program") is not None) != record.get("xla", False):
        return "'steps_per_program' is there without 'xla', or the reverse"
    if (AVERAGED in record) != (settings.get("average_weights") is not None):
        return f"{AVERAGED} is there without average_weights in the settings, or the reverse"
    for name in {"accuracy_matrix", AVERAGED} & record.keys():
        rows = record[name]
        if len(rows) != tasks or any(len(row) != tasks for row in rows):
            return f"{name} is not {tasks} x {tasks}"
        if place := _unmeasured(rows, settings):
            return f"{name} has no accuracy {place}"
    if len(record["initial_accuracy"]) != tasks:
        return f"initial_accuracy is not of {tasks} tasks"
    if record["task_steps"] is not None and sum(record["task_steps"]) != record["steps"]:
        return "'steps' is not the sum of task_steps"
    values, undefined = summarize(
        record["accuracy_matrix"], record["initial_accuracy"], get_method(record["method"]).joint
    )
    if AVERAGED in record:
        values |= averaged_numbers(record[AVERAGED], values["forgetting"] is None)
    for name, value in values.items():
        said = record.get(name)
        same = said is value if said is None or value is None else abs(said - value) <= _ROUNDING
        if not same:
            return f"{name!r} is {said!r}, but the matrix gives {value!r}"
    return (
        "" if record["undefined"].keys() == undefined.keys() else "'undefined' names other metrics"
    )
