"""A cache of decoded images next to a prepared data set: ten times faster than decoding.

A file `nccl_tf/NAME.images` in TFDS's data folder holds a line of JSON, then the training images
uint8 and labels int32, then those for testing. The line says which files they were decoded from, by
size and time of change; with other files, or other bytes than were written, it is not used, and
written anew. It may be deleted at any time.
"""

import contextlib
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
from nccl_tf.whole_files import replaced

FOLDER = "nccl_tf"
_MAX_BYTES = 2**32
_MAX_HEADER = 2**16
_LABEL = np.dtype("<i4")


def read_decoded(name: str, data_dir: Path, variant: str = "") -> tuple[Examples, Examples] | None:
    """The training and the test examples of a prepared data set; None where they are not kept.

    Args:
        name: TFDS's name of the data set.
        data_dir: TFDS's data folder.
        variant: What was made of the images, a part of the file's name; "" for nothing.
    """
    try:
        with open_regular(_path(name, data_dir, variant), _MAX_BYTES) as file:
            header = json.loads(file.readline(_MAX_HEADER))
            content = bytearray(file.read())  # Of which arrays can be written.
            if header["crc32"] != zlib.crc32(content):
                return None
        examples = _examples(header["shapes"], memoryview(content))
        return examples if header["of"] == _source(name, data_dir) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def keep_decoded(
    name: str, data_dir: Path, train: Examples, test: Examples, variant: str = ""
) -> None:
    """Keep the examples of a prepared data set, where its folder can be written.

    Args:
        name: TFDS's name of the data set.
        data_dir: TFDS's data folder.
        train: Its training examples, images uint8 [n, h, w, c] and labels int32 [n].
        test: Its test examples.
        variant: As for `read_decoded`.
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
        source = _source(name, data_dir)
        if not source["files"]:
            return
        header = json.dumps({"of": source, "shapes": shapes, "crc32": crc}).encode() + b"\n"
        path.parent.mkdir(exist_ok=True)
        with replaced(path) as temporary, temporary.open("wb") as file:
            file.write(header)
            file.writelines(parts)


def _path(name: str, data_dir: Path, variant: str) -> Path:
    return data_dir / FOLDER / f"{name.replace('/', '-')}{variant}.images"


def _source(name: str, data_dir: Path) -> dict[str, Any]:
    """The version of TFDS, and the files by name, size and modification time."""
    files = []
    for folder, _, names in os.walk(data_dir / name):
        for entry in names:
            path = os.path.join(folder, entry)
            status = os.stat(path)
            relative = os.path.relpath(path, data_dir)
            files.append([relative, status.st_size, status.st_mtime_ns])
    return {"version": metadata.version("tensorflow-datasets"), "files": sorted(files)}


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
