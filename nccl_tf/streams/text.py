"""Text as a stream: a folder of text files a corpus, a corpus a task, cut into rows of tokens."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.errors import UserError, checked_at_least
from nccl_tf.regular_files import read_regular
from nccl_tf.streams.arrays import Examples, PixelScaling, dtype_name, each_input
from nccl_tf.streams.catalog import short_name
from nccl_tf.streams.sources.image_files import files_below, list_visible, sentences_on_links
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.task import Task
from nccl_tf.streams.validation import TEST_SHARE

SCHEME = "text"
BYTES = 256
"""Tokens where no tokenizer is named: the bytes of the files."""
LENGTH = 128
MOST_BYTES = 2**30
"""Of all files together: rows take 14 times as much."""
_LOGGER = logging.getLogger("nccl_tf")


def is_text(name: str) -> bool:
    """Whether the name of a data set is that of a folder of corpora."""
    return name.partition(":")[0] == SCHEME and ":" in name


def text_stream(
    name: str,
    length: int | None = None,
    tokenizer: Any = None,
    max_tasks: int | None = None,
    examples_per_task: int | None = None,
) -> Stream:
    """A stream of the corpora of a folder; `load_stream` is the public form.

    Args:
        name: "text:FOLDER".
        length: Tokens in a row; None for 128.
        tokenizer: From a text to integers [tokens], with `vocabulary_size()`, as a KerasHub
            tokenizer; None for bytes.
        max_tasks: Keep only the first corpora.
        examples_per_task: Training rows of a task, the first ones; None for all.

    Raises:
        UserError: There are no corpora, one cannot be read or is too short, they have more than 1
            GiB together, or a number is below 1.
    """
    folder = Path(name.partition(":")[2])
    length = checked_at_least("length", LENGTH if length is None else length, 1)
    limits = [n for n in (examples_per_task,) if n is not None]
    for limit in limits:
        checked_at_least("examples_per_task", limit, 1)
    corpora = [path for path in list_visible(folder) if path.is_dir()]
    if not corpora:
        raise UserError(
            f"received {name}, a folder without folders: expected one folder of text files for "
            "each corpus, such as FOLDER/law/statutes.txt"
        )
    files = _files_of(name, folder, corpora[:max_tasks])
    size = BYTES if tokenizer is None else int(tokenizer.vocabulary_size())
    tasks = tuple(
        _task(number, path, rows_of(_tokens_of(files[path], tokenizer), length), *limits)
        for number, path in enumerate(files)
    )
    first = tasks[0].train.inputs
    return Stream(
        name=short_name(name), family="other", head="single", tasks=tasks, tuning=(),
        num_tasks=len(corpora), num_classes=size, pixels=PixelScaling(1.0),
        example_shape=each_input(first, lambda array: array.shape[1:]),
        example_dtype=each_input(first, dtype_name),
    )  # fmt: skip


def rows_of(tokens: np.ndarray, length: int) -> Examples:
    """Tokens [count] cut into rows, each with the token that follows at each place.

    Args:
        tokens: Integers.
        length: Tokens in a row.

    Returns:
        Inputs {"token_ids": int32 [n, length], "padding_mask": int32 [n, length], all 1} and
        targets int32 [n, length]. What is left at the end is in no row.
    """
    count = max(len(tokens) - 1, 0) // length
    ids = tokens[: count * length].reshape(count, length).astype(np.int32)
    following = tokens[1 : count * length + 1].reshape(count, length).astype(np.int32)
    return Examples({"token_ids": ids, "padding_mask": np.ones_like(ids)}, following)


def _task(number: int, path: Path, rows: Examples, most: int | None = None) -> Task:
    """The task of a corpus, whose last fifth is its test part."""
    count = len(rows.labels)
    held_out = -(-count // TEST_SHARE)
    kept = count - held_out if most is None else min(most, count - held_out)
    if kept < 1:
        raise UserError(
            f"received the corpus {path.name!r} of {count} rows of tokens, of which a fifth is "
            "held out: expected at least 2; take a smaller length, or more text"
        )

    def train() -> Examples:
        return rows.take(slice(0, kept))

    def test() -> Examples:
        return rows.take(slice(count - held_out, count))

    return Task(number, (), kept, train, test)


def _files_of(name: str, folder: Path, corpora: Sequence[Path]) -> dict[Path, list[Path]]:
    """The files of each corpus, in the order of their paths.

    Raises:
        UserError: A folder cannot be listed, or they have more than `MOST_BYTES` together.
    """
    links: list[Path] = []
    files: dict[Path, list[Path]] = {path: [] for path in corpora}
    for path in files_below(folder, links):
        files.get(folder / path.relative_to(folder).parts[0], []).append(path)
    for sentence in sentences_on_links(name, folder, links):
        _LOGGER.warning("%s", sentence)
    found = (path for part in files.values() for path in part)
    sizes = {path: path.stat().st_size for path in found if path.is_file()}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise UserError(
            f"received {name} of {sum(sizes.values()):,} bytes, of which {largest} has "
            f"{sizes[largest]:,}: expected {MOST_BYTES:,} at most; take fewer corpora, "
            "max_tasks=..., or smaller files"
        )
    return files


def _tokens_of(files: Sequence[Path], tokenizer: Any) -> np.ndarray:
    """The tokens of files, one after the other.

    Raises:
        UserError: A file cannot be read, or is no text for the tokenizer.
    """
    parts: list[np.ndarray] = []
    for path in files:
        try:
            content = read_regular(path, MOST_BYTES)
        except OSError as error:
            raise UserError(
                f"cannot read {path} ({error.strerror}): expected a text file; leave it out"
            ) from error
        parts.append(_as_bytes(content) if tokenizer is None else _tokens(path, content, tokenizer))
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _as_bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content + b"\n", np.uint8)


def _tokens(path: Path, content: bytes, tokenizer: Any) -> np.ndarray:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"cannot read {path} as UTF-8 ({error.reason} at byte {error.start}): expected text "
            "for the tokenizer; convert it, or leave tokenizer out for a stream of bytes"
        ) from error
    tokens = np.asarray(tokenizer(text))
    if not tokens.size:  # of an empty file, in whatever dtype
        tokens = np.zeros(0, np.int64)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise UserError(
            f"received a tokenizer that makes {tokens.dtype} {list(tokens.shape)} of a text: "
            "expected integers [tokens], as of a KerasHub tokenizer without sequence_length"
        )
    end = getattr(tokenizer, "end_token_id", None)
    tokens, size = tokens if end is None else np.append(tokens, end), tokenizer.vocabulary_size()
    outside = (tokens < 0) | (tokens >= size)
    if outside.any():
        raise UserError(
            f"received a tokenizer of {size} tokens that makes {tokens[outside][0]} of {path}: "
            f"expected integers from 0 to {size - 1}, below its vocabulary_size()"
        )
    return tokens
