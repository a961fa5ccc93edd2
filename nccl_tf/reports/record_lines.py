"""Published records: files of JSON lines, each the content of a run's `result.json`.

`<dataset>-<head>/<method>.jsonl` holds the runs of a method on a stream, sorted by the hash of the
settings and by seed.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nccl_tf.arguments.names import NAME
from nccl_tf.errors import UserError
from nccl_tf.records.files import check_no_links, one_at_a_time, remove_left_over, write_file
from nccl_tf.records.record import MAX_BYTES, Record, checked_record, parse_json, values_problem
from nccl_tf.regular_files import read_regular

SUFFIX = ".jsonl"
_FIRST = ("method", "dataset", "head", "seed", "settings_hash")
_READ_ADVICE = "restore the line, or delete it and publish the run again"
_WRITE_ADVICE = "make room or choose another --publish_dir"
_MAX_LINES = 100_000

Key = tuple[str, int]
"""Hash of the settings and seed, by which the lines of a file are sorted."""


class RecordLine(NamedTuple):
    """A line of a file of published records.

    Attributes:
        place: The file and the number of the line, from 1, such as "agem.jsonl:3".
        record: Its record; None where it is broken.
        problem: What is wrong with it, a sentence; "" for a record that is whole.
    """

    place: str
    record: Record | None
    problem: str = ""


class PublishCounts(NamedTuple):
    """Counts of the changes that `publish` made to a file.

    Attributes:
        added: Number of records that it did not have.
        replaced: Number of records that were other ones before.
        unchanged: Number of records that it had already.
    """

    added: int
    replaced: int
    unchanged: int


def record_key(record: Record) -> Key:
    """The hash of the settings and the seed, which together name a run."""
    return record.settings_hash, record.seed


def as_line(record: Record) -> str:
    """The record as one line of JSON, without a newline.

    Raises:
        ValueError: A number is nan or infinite.
    """
    content = record.as_json()
    names = [*_FIRST, *sorted(content.keys() - set(_FIRST))]
    return json.dumps(
        {name: content[name] for name in names}, separators=(",", ":"), allow_nan=False
    )


def read_lines(path: Path) -> list[RecordLine]:
    """Read a file of published records, each as `read_record` gives that of a `result.json`."""
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        return [RecordLine(str(path), None, f"cannot read {path} ({error.strerror}): restore it")]
    if data.count(b"\n") > _MAX_LINES:
        problem = f"{path} has more than {_MAX_LINES:,} lines: expected one for each run"
        return [RecordLine(str(path), None, problem)]
    if problem := values_problem(data, str(path)):
        return [RecordLine(str(path), None, problem)]
    rows = data.removesuffix(b"\n").split(b"\n") if data else []
    return [_read_line(row, f"{path}:{i}") for i, row in enumerate(rows, start=1)]


def publish(
    records: Iterable[Record], folder: Path, *, overwrite: bool = False
) -> dict[Path, PublishCounts]:
    """Put records into the files of published records below a folder.

    Nothing is written before all records are known to fit. Files that hold them already are left
    as they are. Where others publish into the folder at the same time, one waits for the other.

    Args:
        records: Of finished runs, each of another settings or seed.
        folder: Where the files are, or will be.
        overwrite: Replace the line of a run that is published with another record.

    Returns:
        For each file that the records belong to, what was done to it.

    Raises:
        UserError: A run is published with another record, a file holds a broken line or cannot be
            written, or a record's names make no file name.
    """
    by_path: dict[Path, list[Record]] = {}
    for record in records:
        by_path.setdefault(_path(record, folder), []).append(record)
    # What is written depends on what was read: nobody else may write in between.
    with one_at_a_time(folder, _WRITE_ADVICE):
        for place in {path.parent for path in by_path}:
            check_no_links(place, folder, "--publish_dir")
            remove_left_over(place)
        merged = {path: _merge(path, new, overwrite) for path, new in by_path.items()}
        for path, (content, counts) in merged.items():
            if counts.added or counts.replaced:
                _write(path, content)
    return {path: counts for path, (_, counts) in merged.items()}


def _read_line(row: bytes, place: str) -> RecordLine:
    try:
        return RecordLine(
            place, checked_record(parse_json(row, place, _READ_ADVICE), place, _READ_ADVICE)
        )
    except UserError as error:
        return RecordLine(place, None, str(error))


def _path(record: Record, folder: Path) -> Path:
    names = record.dataset, record.head, record.method
    if not all(map(NAME.fullmatch, names)):
        raise UserError(
            f"a record of {' '.join(map(repr, names))} cannot be published: expected names of data "
            "set, head and method of letters, digits and _.:+-, which begin with a letter, a digit "
            "or _"
        )
    # Files are published to be kept with others' files, and Windows has no colon in their names.
    dataset, head, method = (name.replace(":", "_") for name in names)
    return folder / f"{dataset}-{head}" / f"{method}{SUFFIX}"


def _merge(
    path: Path, new: Iterable[Record], overwrite: bool
) -> tuple[dict[Key, Record], PublishCounts]:
    """The new content of the file, and counts of the changes."""
    content: dict[Key, Record] = {}
    # Not `path.exists()`, which raises for a name that is too long.
    for line in read_lines(path) if os.path.exists(path) else []:
        if line.record is None:
            raise UserError(f"cannot add to {path}: {line.problem}")
        if content.setdefault(record_key(line.record), line.record) is not line.record:
            raise UserError(f"cannot add to {path}: {line.place} is the same run as another line")
    added = replaced = unchanged = 0
    for record in new:
        key = record_key(record)
        if key not in content:
            added += 1
        elif content[key] == record:
            unchanged += 1
        elif overwrite:
            replaced += 1
        else:
            raise UserError(
                f"seed {record.seed} of {record.method} (settings {key[0][:8]}) is published "
                f"in {path} with another record: leave that as it is, or replace it with "
                "--overwrite"
            )
        content[key] = record
    return content, PublishCounts(added, replaced, unchanged)


def _write(path: Path, content: Mapping[Key, Record]) -> None:
    rows = (content[key] for key in sorted(content))
    write_file(path, "".join(f"{as_line(row)}\n" for row in rows).encode(), _WRITE_ADVICE)
