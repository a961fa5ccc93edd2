"""Checkpoints of a run: the last two, each written atomically and with a checksum."""

import contextlib
import hashlib
import io
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.byte_strings import join_strings, split_strings
from nccl_tf.errors import UserError
from nccl_tf.records.files import list_names, remove, write_file
from nccl_tf.regular_files import open_regular

_MAGIC = b"nccl_tf checkpoint\n"
_NAME = re.compile(r"\d{6,}\.checkpoint")
_NUM_KEPT = 2
_META = "meta"
_ARRAY, _LENGTHS, _BYTES = "a", "lengths", "bytes"


class Checkpoint(NamedTuple):
    """The state of a run.

    Attributes:
        arrays: The values of all variables by name.
        meta: The other state of the run, as JSON values.
    """

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]


class CheckpointStore:
    """Numbered checkpoints in a folder, of which the last two are kept.

    Only files with the names that it gives are removed. A file has a line with the format, a line
    with the SHA-256 of the payload in hexadecimal, and the payload, an .npz file without pickles.

    Args:
        folder: Created with the first checkpoint.
        chosen_by: The flag or argument that chose the folder, for messages.
        again: What resumes, for messages.
    """

    def __init__(
        self, folder: Path, chosen_by: str = "--output_dir", again: str = "the same command"
    ):
        self.folder, self._chosen_by = folder, chosen_by
        self._advice = (
            f"free space or choose another {chosen_by}; {again} resumes from the last checkpoint"
        )

    @property
    def is_empty(self) -> bool:
        """Whether it holds no checkpoint, whole or damaged."""
        return not self._files()

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, then remove all but the last two.

        Raises:
            UserError: The checkpoint cannot be written; earlier ones are unchanged.
        """
        buffer = io.BytesIO()
        meta = np.frombuffer(json.dumps(checkpoint.meta).encode(), np.uint8)
        np.savez(buffer, **{_META: meta, **_without_objects(checkpoint.arrays)})
        payload = buffer.getvalue()
        digest = hashlib.sha256(payload).hexdigest().encode()
        files = self._files()
        number = 1 + (int(files[-1].stem) if files else 0)
        path = self.folder / f"{number:06d}.checkpoint"
        write_file(path, _MAGIC + digest + b"\n" + payload, self._advice)
        for old in self._files()[:-_NUM_KEPT]:
            remove(old)
        return path

    def last(self) -> Checkpoint | None:
        """Read the newest valid checkpoint, or None; damaged ones are skipped with a warning.

        Raises:
            UserError: The folder cannot be listed.
        """
        files = self._files()
        for path in reversed(files):
            checkpoint = _read(path)
            if checkpoint is not None:
                return checkpoint
            logging.getLogger("nccl_tf").warning("%s is torn or damaged, and left out", path)
        if files:
            logging.getLogger("nccl_tf").warning(
                "no checkpoint in %s is whole: starting from the beginning", self.folder
            )
        return None

    def clear(self) -> None:
        """Remove all checkpoints, and the folder if it is empty then.

        Raises:
            UserError: The folder cannot be listed.
        """
        for path in self._files():
            remove(path)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        names = list_names(self.folder, self._chosen_by)
        return [self.folder / name for name in names if _NAME.fullmatch(name)]


def variables_to_arrays(variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Copy the values of Keras variables, by name."""
    return {name: np.copy(variable.value.numpy()) for name, variable in variables.items()}


def state_sha256(variables: Mapping[str, Any]) -> str:
    """SHA-256 of all values in order, in hexadecimal: equal only if all bits are equal."""
    return arrays_sha256(variables_to_arrays(variables))


def arrays_sha256(arrays: Mapping[str, np.ndarray]) -> str:
    """`state_sha256` of variables with these values."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(name.encode())
        # The bytes of an array of strings would be the addresses of its objects.
        for part in join_strings(array) if array.dtype == object else (array,):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


@contextmanager
def translate_misfit(what: str, advice: str) -> Iterator[None]:
    """Translate whatever the body raises while it puts a checkpoint back into a `UserError`.

    Args:
        what: That the checkpoint does not fit, for the message.
        advice: What the user can do about it, for the message.

    Raises:
        UserError: The body raised.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # The state of another program can fail anywhere.
        raise UserError(f"{what} ({error}): {advice}") from error


def assign_arrays(variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Assign saved values to variables, to all or to none.

    Raises:
        ValueError: The names, a shape or a dtype differ, so the checkpoint is of another program.
    """
    if variables.keys() != arrays.keys():
        different = sorted(variables.keys() ^ arrays.keys())
        raise ValueError(f"the checkpoint and the learner differ in {', '.join(different[:5])}")
    values = {}
    for name, variable in variables.items():
        array, dtype = arrays[name], np.dtype(variable.value.dtype.as_numpy_dtype)
        if dtype.kind == "V" and array.dtype == f"V{dtype.itemsize}":
            array = array.view(dtype)  # an .npz file does not know bfloat16
        if (array.shape, array.dtype) != (tuple(variable.shape), dtype):
            raise ValueError(
                f"the checkpoint has {name} of shape {array.shape} and dtype {array.dtype}, the "
                f"learner of {tuple(variable.shape)} and {dtype}"
            )
        values[name] = array
    for name, variable in variables.items():
        variable.assign(values[name])


def _without_objects(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays by name, byte strings as lengths and bytes: an array of objects would be a pickle."""
    files: dict[str, Any] = {}
    for name, array in arrays.items():
        if array.dtype == object:
            files[f"{_LENGTHS}/{name}"], files[f"{_BYTES}/{name}"] = join_strings(array)
        else:
            files[f"{_ARRAY}/{name}"] = array
    return files


def _with_strings(files: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {}
    for key, array in files.items():
        kind, _, name = key.partition("/")
        if kind == _ARRAY:
            arrays[name] = array
        elif kind == _LENGTHS:
            arrays[name] = split_strings(array, files[f"{_BYTES}/{name}"])
    return arrays


def _read(path: Path) -> Checkpoint | None:
    """The checkpoint in a file; None where it is not as it was written."""
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError:
        return None
    header, payload = content[: len(_MAGIC) + 65], content[len(_MAGIC) + 65 :]
    digest = hashlib.sha256(payload).hexdigest().encode()
    if header != _MAGIC + digest + b"\n":
        return None
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:  # noqa: TID251
            meta = json.loads(arrays[_META].tobytes())
            return Checkpoint(_with_strings({k: arrays[k] for k in arrays.files}), meta)
    except Exception:  # Of a payload that something else has written NumPy can raise any.
        return None
