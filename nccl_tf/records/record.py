"""The record of a finished run: result.json, written whole or not at all, checked on reading."""

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from nccl_tf.arguments.evaluate import ALL, tasks_to_evaluate
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
_MAX_VALUES = 4_000_000
"""The most values in such a file: small ones take 30 times their bytes, so that all take up to some
450 MB. Those of runs have 16 bytes or more; 1,000 tasks have a million accuracies."""

_OF_TYPES = {
    str: "name", int: "integer", float: "number", bool: "switch", NoneType: "null",
    tuple[int, ...]: "integers", tuple[str, ...]: "names",
}  # fmt: skip
SETTING_KINDS = {
    name: "|".join(_OF_TYPES[kind] for kind in ([hint] if hint in _OF_TYPES else get_args(hint)))
    for name, hint in get_type_hints(Settings).items()
    if name != "hyperparameters"
} | {"keras": "text|null", "rates": "texts|null"}
"""Types of a setting, by name."""
EVERY_RUN_HAS = (
    "method", "dataset", "head", "num_tasks", "tuning_tasks", "max_tasks", "batch_size", "epochs",
    "learning_rate",
)  # fmt: skip
"""Settings that are not null in any record."""
PLAIN = "name|metric|switch|null"
"""The kinds of a value that has no kind of its own, such as a hyperparameter."""
_SHA256 = r"^[0-9a-f]{64}(?![\s\S])"
_ROUNDING = 1e-12
"""By how much a metric may differ from that of the matrix: sums in another order."""
_ADVICE = "restore it, or delete it and run again"


def _entry(kinds: str, about: str = "", *, optional: bool = False, **bounds: Any) -> Any:
    """An entry of a record, as a field of the dataclass.

    Args:
        kinds: What its value may be, such as "integer|null".
        about: What it tells, for the schema.
        optional: Whether older records lack it, in which it is None.
        bounds: Of its value, for the schema.
    """
    metadata = {"kinds": kinds, "about": about, "bounds": bounds}
    return field(default=None, metadata=metadata) if optional else field(metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished run, as result.json and the lines of published records hold it.

    Accuracies, forgetting and transfers are fractions, times seconds, memory bytes.

    Args:
        settings: Those of the run; what a run lacks that was made before there was a setting is
            None.
        settings_json: The settings as they were written, which is what the hash is of.
        order: The names of the entries as they were written.
        others: Entries that have no name here.
    """

    method: str = _entry("name", "As in settings.")
    dataset: str = _entry("name", "As in settings.")
    head: str = _entry("name", "As in settings.")
    seed: int = _entry("integer", "Of stream, weights and draws.")
    num_tasks: int = _entry("integer", "Tasks of the stream, as in settings.", minimum=1)
    tuning_tasks: int = _entry("integer", "Those of them that are held out, as in settings.")
    evaluated_tasks: int = _entry(
        "integer", "Tasks that were run, K; max_tasks of the settings.", minimum=1
    )
    settings: Settings = _entry("object")  # noqa: RUF009
    settings_hash: str = _entry(
        "text",
        "SHA-256 of the settings as JSON with sorted keys, without those that are null or "
        "hyperparameters at their default, and with jit_compile: false where that is missing.",
        pattern=_SHA256,
    )
    options: Mapping[str, Any] = _entry("object")
    versions: Mapping[str, str | None] = _entry("object")
    commit: str | None = _entry(
        "name|null",
        "Of the source tree when the process began that ended the run; null where it is no "
        "checkout.",
    )
    package_modified: bool | None = _entry(
        "switch|null",
        "Whether files of the package differed from the commit then, new ones included; null "
        "without a commit; not in older records, of which it is unknown.",
        optional=True,
    )
    commit_in_history: bool | None = _entry(
        "switch",
        "false where the history of the repository has lost the commit, so that the code of the "
        "record cannot be looked up; given in such records alone.",
        optional=True,
    )
    accuracy_matrix: Sequence[Sequence[float | None]] = _entry(
        "list",
        "K x K: row i, column j is the accuracy on task j after training task i, null where it was "
        "not evaluated.",
    )
    initial_accuracy: Sequence[float | None] = _entry(
        "fractions", "K accuracies before training, null where not evaluated."
    )
    average_accuracy: float = _entry(
        "metric|null", "As the matrix gives it, as are the four that follow.", minimum=0, maximum=1
    )
    forgetting: float | None = _entry("metric|null", minimum=-1, maximum=1)
    learning_accuracy: float | None = _entry("metric|null", minimum=0, maximum=1)
    backward_transfer: float | None = _entry("metric|null", minimum=-1, maximum=1)
    forward_transfer: float | None = _entry("metric|null", minimum=-1, maximum=1)
    averaged_accuracy_matrix: Sequence[Sequence[float | None]] | None = _entry(
        "list",
        "As accuracy_matrix, with the averaged weights; in a record with average_weights in its "
        "settings, as are the two that follow.",
        optional=True,
    )
    averaged_average_accuracy: float | None = _entry(
        "metric|null",
        "As the averaged matrix gives it, as is the forgetting.",
        optional=True,
        minimum=0,
        maximum=1,
    )
    averaged_forgetting: float | None = _entry("metric|null", optional=True, minimum=-1, maximum=1)
    undefined: Mapping[str, str] = _entry("object", "Why a metric is null, by its name.")
    learning_rates: Sequence[float] = _entry("numbers", "Of each task, or of all at once.")
    parameters: int = _entry("integer", "Trainable numbers.")
    train_seconds: float = _entry("number", "In training steps, without tracing and compiling.")
    compile_seconds: float = _entry("number")
    eval_seconds: float = _entry("number")
    steps: int = _entry("integer", "Sum of task_steps.")
    task_steps: Sequence[int] | None = _entry(
        "integers|null", "Steps of each task, or of all at once; null where they were not noted."
    )
    peak_memory_bytes: int | None = _entry("integer|null")
    state_sha256: str | None = _entry(
        "text|null",
        "Of weights, memory, generators, optimizer and counters at the end of the run, as the code "
        "of the commit has them; null where it was not noted.",
        pattern=_SHA256,
    )
    skipped_steps: int | None = _entry(
        "integer|null", "Steps whose loss or gradient was not finite."
    )
    device: str | None = _entry("text|null", "What the run used; null where it was not noted.")
    tensorfloat32: bool | None = _entry(
        "switch",
        "Whether products and convolutions of float32 were computed in TensorFloat-32 (10 bits of "
        "fraction), which newer NVIDIA GPUs have. Not in older records: those of processors were "
        "computed in float32, of those of GPUs it is unknown.",
        optional=True,
    )
    xla: bool | None = _entry(
        "switch",
        "Whether whole steps were compiled with XLA, which changes rounding. Not in older records, "
        "of which it is false.",
        optional=True,
    )
    steps_per_program: int | None = _entry(
        "integer|null",
        "Steps in one program of XLA, on which rounding depends too; null without XLA.",
        optional=True,
        minimum=1,
    )
    compile_cache: str | None = _entry(
        "text|null",
        "hit where every program of XLA came from the cache on disk, miss where one was compiled; "
        "null without such programs or a cache. Bits do not depend on it.",
        optional=True,
    )
    data_sha256: str | None = _entry(
        "text|null",
        "Of the first task's examples for training and for testing, as the run had them: whether "
        "two machines have the same data. Not in older records, of which it is unknown.",
        optional=True,
        pattern=_SHA256,
    )
    environment: Mapping[str, str] | None = _entry(
        "object",
        "Variables of the environment that decide bits, such as TF_XLA_FLAGS, those that were set. "
        "Not in older records, of which it is unknown.",
        optional=True,
    )
    replicas: int = _entry("integer", minimum=1)
    bytes_stored: int | None = _entry(
        "integer",
        "Of the variables that the method keeps beside its network and the optimizer's: memory, "
        "copies, importances, averages, statistics. Not in older records.",
        optional=True,
    )
    examples_passed: int | None = _entry(
        "integer|null",
        "Rows that pass forward through the network while it learns: of the stream, of the memory "
        "and what the method passes again; null where it depends on the data. Not in older "
        "records.",
        optional=True,
    )
    costs_from_settings: str | None = _entry(
        "name",
        "Commit whose code computed bytes_stored and examples_passed from the settings and the "
        "steps, after the run; given in records alone that were made before runs measured them.",
        optional=True,
    )
    diagnostics: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"kinds": "object", "about": "What --diagnostics measured.", "bounds": {}},
    )
    settings_json: Mapping[str, Any]
    order: tuple[str, ...] = field(compare=False)
    others: Mapping[str, Any]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Record":
        """The record of what a file holds, each entry of its kind (`checked_record`)."""
        given = {name: content[name] for name in ENTRIES if name in content}
        return cls(
            **given | {"settings": Settings.from_json(content["settings"])},
            settings_json=content["settings"],
            order=tuple(content),
            others={name: value for name, value in content.items() if name not in ENTRIES},
        )

    @property
    def timing(self) -> tuple[Any, ...]:
        """What must be equal to compare times: device, threads, runs side by side, XLA, and the
        variables of the environment that choose kernels."""
        side_by_side = (self.options.get("threads"), self.options.get("workers"))
        kernels = tuple(sorted((self.environment or {}).items()))
        return (self.device, *side_by_side, bool(self.xla), kernels)

    def as_json(self) -> dict[str, Any]:
        """The content of a file: the entries that were written, in order."""
        own = {name: getattr(self, name) for name in ENTRIES}
        every = {**own, "settings": self.settings_json, **self.others}
        return {name: every[name] for name in self.order}


ENTRIES = {entry.name: entry for entry in fields(Record) if entry.metadata}
"""The entries of a record by name; their metadata has kinds, meaning and bounds."""


def write_record(record: Record, folder: Path) -> Path:
    """Write result.json into `folder`, so that a reader sees the whole of it or none.

    Raises:
        UserError: The folder cannot be written.
        ValueError: A number is nan or infinite.
    """
    path = folder / FILE_NAME
    write_file(path, record_bytes(record))
    return path


def record_bytes(record: Record) -> bytes:
    """The content of result.json.

    Raises:
        ValueError: A number is nan or infinite.
    """
    return (json.dumps(record.as_json(), indent=1, allow_nan=False) + "\n").encode()


def read_record(path: Path) -> Record:
    """Read and validate a result.json.

    Raises:
        UserError: The file cannot be read, is of another schema or none, or contradicts itself.
    """
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): {_ADVICE}") from error
    return checked_record(parse_json(data, str(path)), str(path))


def read_result(folder: Path, settings: Settings, seed: int) -> Record:
    """The record of a run that is finished in its folder.

    Args:
        folder: The run's folder.
        settings: Of the run.
        seed: Of the run.

    Raises:
        UserError: As `read_record`, and where it is the record of another run.
    """
    record = read_record(folder / FILE_NAME)
    if (record.settings_hash, record.seed) != (settings.digest(), seed):
        raise UserError(
            f"{folder / FILE_NAME} is the record of another run (seed {record.seed}, settings "
            f"{record.settings_hash[:8]}; expected seed {seed}, {settings.digest()[:8]}): move "
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
        UserError: It is no JSON, has too many values, or a number that JSON does not have (NaN,
            Infinity).
    """
    if problem := values_problem(data, place):
        raise UserError(f"{problem}; {advice}")
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinite.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place} is not JSON ({error}): {advice}") from error
    return value


def values_problem(data: bytes, place: str) -> str:
    """A sentence on a file of records that has more values than are read; "" for another.

    Args:
        data: Its JSON texts.
        place: Where they stand.
    """
    count = sum(map(data.count, (b",", b":", b"[", b"{")))
    if count <= _MAX_VALUES:
        return ""
    return f"{place} has {count:,} values or more: expected at most {_MAX_VALUES:,}"


def checked_record(content: Any, place: str, advice: str = _ADVICE) -> Record:
    """The record of a JSON value, which is of the schema and does not contradict itself.

    Args:
        content: The value.
        place: Where it stands, for the message.
        advice: What to do where it is no record, for the message.

    Raises:
        UserError: It is of another schema or none, or contradicts itself.
    """
    problem = _version_problem(content)
    if not problem and isinstance(content.get("method"), str) and content["method"] not in METHODS:
        raise UserError(
            f"{place} is of the unknown method {reprlib.repr(content['method'])}: to read it, name "
            "the plugin that registers the method with --plugin"
        )
    try:
        problem = problem or _kind_problem(content)
        if not problem:
            record = Record.from_json(content)
            problem = _hash_problem(record) or _contradiction(record)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        problem = f"a value is of another kind than expected ({type(error).__name__}: {error})"
    if problem:
        raise UserError(f"{place} is not a record of a run: {problem}; {advice}")
    return record


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _version_problem(content: Any) -> str:
    if not isinstance(content, dict):
        return f"received a {type(content).__name__}, expected an object"
    version = content.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        return f"schema_version is {reprlib.repr(version)}, expected {SCHEMA_VERSION}"
    return ""


def _kind_problem(content: Mapping[str, Any]) -> str:
    """The first value that is missing or has the wrong type, as a clause; "" if there is none.

    `docs/record.schema.json` is made of the same kinds.
    """
    for name, entry in ENTRIES.items():
        expected = entry.metadata["kinds"]
        if name not in content:
            if entry.default is entry.default_factory is MISSING:
                return f"{name!r} is missing"
        elif not _is(content[name], expected):
            return _odd(name, content[name], expected)
    settings = content["settings"]
    for name, expected in SETTING_KINDS.items():
        needed = expected if name in EVERY_RUN_HAS else f"{expected}|null"
        if not _is(settings.get(name), needed):
            return _odd(f"settings.{name}", settings.get(name), needed)
    others = {
        name: value
        for name, value in settings.items()
        if name not in {"hyperparameters", *SETTING_KINDS}
    }
    options = {name: value for name, value in content["options"].items() if name != "plugins"}
    parts = {
        "settings": (others, PLAIN),
        "settings.hyperparameters": (settings["hyperparameters"], PLAIN),
        "options": (options, PLAIN),
        "options.plugins": (content["options"].get("plugins", {}), "text"),
        "versions": (content["versions"], "text|null"),
        "environment": (content.get("environment", {}), "text"),
        "undefined": (content["undefined"], "text|null"),
    }
    for place, (values, expected) in parts.items():
        for name, value in values.items():
            if not _is(name, "text"):
                return f"a name in {place!r} is {reprlib.repr(name)}, expected a short text"
            if not _is(value, expected):
                return _odd(f"{place}.{name:.40}", value, expected)
    for name in {"accuracy_matrix", AVERAGED} & content.keys():
        for i, j, value in (
            (i, j, value) for i, row in enumerate(content[name]) for j, value in enumerate(row)
        ):
            if not _is_fraction(value):  # Not `_is`: a matrix has very many.
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
        "fraction": _is_fraction(value),
        "list": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    return any(
        kinds[kind] if kind in kinds else isinstance(value, list) and _all_are(value, kind)
        for kind in expected.split("|")
    )


def _is_fraction(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= 1)


def _all_are(values: Sequence[Any], kinds: str) -> bool:
    """Whether all of a list are of a kind, in the plural, such as "integers"."""
    return all(_is(value, kinds.removesuffix("s")) for value in values)


def _hash_problem(record: Record) -> str:
    try:
        digest = settings_digest(record.settings_json)
    except UserError:
        return f"its settings are of no run: unknown method {record.settings.method!r}"
    return "" if digest == record.settings_hash else "settings_hash is not that of the settings"


def _unmeasured(rows: Sequence[Sequence[Any]], settings: Settings) -> str:
    """Where an accuracy is missing that a run with these settings measures, "" where none is."""
    evaluate, count = settings.evaluate or ALL, len(rows)
    joint = get_method(settings.method).joint
    for i in range(count - 1 if joint else 0, count):
        for j in tasks_to_evaluate(evaluate, i, count):
            if rows[i][j] is None:
                return f"on task {j + 1} after task {i + 1}"
    return ""


def _contradiction(record: Record) -> str:
    """Values that the record states twice and differently."""
    settings, tasks = record.settings, record.evaluated_tasks
    again = {name: name for name in ("method", "dataset", "head", "num_tasks", "tuning_tasks")}
    for name, of_settings in {**again, "evaluated_tasks": "max_tasks"}.items():
        if getattr(record, name) != getattr(settings, of_settings):
            return f"{name!r} is {getattr(record, name)!r}, not that of its settings"
    if record.tensorfloat32 and settings.precision == "float32":
        return "'tensorfloat32' is True, but the precision of its settings is 'float32'"
    if (record.steps_per_program is not None) != bool(record.xla):
        return "'steps_per_program' is there without 'xla', or the reverse"
    averaged = record.averaged_accuracy_matrix
    if (averaged is not None) != (settings.average_weights is not None):
        return f"{AVERAGED} is there without average_weights in the settings, or the reverse"
    for name, rows in (("accuracy_matrix", record.accuracy_matrix), (AVERAGED, averaged)):
        if rows is None:
            continue
        if len(rows) != tasks or any(len(row) != tasks for row in rows):
            return f"{name} is not {tasks} x {tasks}"
        if place := _unmeasured(rows, settings):
            return f"{name} has no accuracy {place}"
    if len(record.initial_accuracy) != tasks:
        return f"initial_accuracy is not of {tasks} tasks"
    for j in tasks_to_evaluate(settings.evaluate or ALL, -1, tasks):
        if record.initial_accuracy[j] is None:
            return f"initial_accuracy has none on task {j + 1}"
    if record.task_steps is not None and sum(record.task_steps) != record.steps:
        return "'steps' is not the sum of task_steps"
    values, undefined = summarize(
        record.accuracy_matrix, record.initial_accuracy, get_method(record.method).joint
    )
    if averaged is not None:
        values |= averaged_numbers(averaged, values["forgetting"] is None)
    for name, value in values.items():
        said = getattr(record, name)
        same = said is value if said is None or value is None else abs(said - value) <= _ROUNDING
        if not same:
            return f"{name!r} is {said!r}, but the matrix gives {value!r}"
    return "" if record.undefined.keys() == undefined.keys() else "'undefined' names other metrics"
