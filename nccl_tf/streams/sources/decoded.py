"""A cache of decoded images of a data set: ten times faster than decoding.

A file `nccl_tf/NAME.images` in TFDS's data folder holds a line of JSON, then the training images
uint8 and labels int32, then those for testing. The line has a digest of the files that they were
decoded from, by size and time of change; with other files, or other bytes than were written, it is
not used, and written anew. It may be deleted at any time.
"""

import contextlib
import hashlib
import json
import math
import os
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.regular_files import open_regular
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.sources.image_files import files_below
from nccl_tf.whole_files import replaced

FOLDER = "nccl_tf"
_MAX_BYTES = 2**32
_MAX_HEADER = 2**16
_LABEL = np.dtype("<i4")


def data_folder(data_dir: str | os.PathLike | None) -> Path:
    """TFDS's data folder: as it is given, else in TFDS_DATA_DIR, else in the user's home."""
    return Path(data_dir or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()


def read_decoded(
    name: str, data_dir: Path, variant: str = "", made_of: Path | None = None
) -> tuple[Examples, Examples] | None:
    """The training and the test examples of a data set; None where they are not kept.

    Args:
        name: TFDS's name of the data set.
        data_dir: TFDS's data folder.
        variant: What was made of the images, a part of the file's name; "" for nothing.
        made_of: The folder of the files; None for that of the prepared data set.
    """
    try:
        with open_regular(_path(name, data_dir, variant), _MAX_BYTES) as file:
            header = json.loads(file.readline(_MAX_HEADER))
            content = bytearray(os.fstat(file.fileno()).st_size - file.tell())
            file.readinto(content)  # Arrays of a bytearray can be written.
            if header["crc32"] != zlib.crc32(content):
                return None
        examples = _examples(header["shapes"], memoryview(content))
        return examples if header["of"] == _digest(made_of or data_dir / name) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def keep_decoded(
    name: str,
    data_dir: Path,
    train: Examples,
    test: Examples,
    variant: str = "",
    made_of: Path | None = None,
) -> None:
    """Keep the examples of a data set, where its folder can be written.

    Args:
        name: TFDS's name of the data set.
        data_dir: TFDS's data folder.
        train: Its training examples, images uint8 [n, h, w, c] and labels int32 [n].
        test: Its test examples.
        variant: As for `read_decoded`.
        made_of: Likewise.
    """
    parts = [
        part.tobytes()
        for examples in (train, test)
        for part in (examples.inputs, examples.labels.astype(_LABEL))
    ]
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    shapes = [examples.inputs.shape for examples in (train, test)]
    path = _path(name, data_dir, variant)
    with contextlib.suppress(OSError):  # The folder may be another user's, or full.
        source = _digest(made_of or data_dir / name)
        if source is None:
            return
        header = json.dumps({"of": source, "shapes": shapes, "crc32": crc}).encode() + b"\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as temporary, temporary.open("wb") as file:
            file.write(header)
            file.writelines(parts)


def _path(name: str, data_dir: Path, variant: str) -> Path:
    return data_dir / FOLDER / f"{name.replace('/', '-')}{variant}.images"


def _digest(folder: Path) -> str | None:
    """SHA-256 of the version of TFDS and the files below a folder, those of links too, by name,
    size and modification time; None without any.
    """
    files = []
    for path in files_below(folder) if folder.is_dir() else ():
        status = path.stat()
        relative = path.relative_to(folder).as_posix()
        files.append([relative, status.st_size, status.st_mtime_ns])
    said = json.dumps([metadata.version("tensorflow-datasets"), files])
    return hashlib.sha256(said.encode()).hexdigest() if files else None


def _examples(shapes: Any, content: memoryview) -> tuple[Examples, Examples] | None:
    """The examples whose images have these shapes; None where the bytes are not as many."""
    sides = [side for shape in shapes for side in shape[1:]]
    if [len(shape) for shape in shapes] != [4, 4] or min(sides) < 1 or min(map(min, shapes)) < 0:
        return None
    sizes = [math.prod(shape) for shape in shapes]
    lengths = [size + _LABEL.itemsize * shape[0] for size, shape in zip(sizes, shapes, strict=True)]
    if sum(lengths) != len(content):
        return None
    parts = []
    for shape, size, start in zip(shapes, sizes, (0, lengths[0]), strict=True):
        images = np.frombuffer(content, np.uint8, size, start).reshape(shape)
        labels = np.frombuffer(content, _LABEL, shape[0], start + size).astype(np.int32)
        parts.append(Examples(images, labels))
    return parts[0], parts[1]
