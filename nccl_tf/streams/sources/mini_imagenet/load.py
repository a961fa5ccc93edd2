"""mini-ImageNet: where a user's files are, which layout they have, and their images."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.sources.decoded import data_folder, keep_decoded, read_decoded
from nccl_tf.streams.sources.image_files import list_visible
from nccl_tf.streams.sources.mini_imagenet.folder import read_folder
from nccl_tf.streams.sources.mini_imagenet.pickles import read_pickles
from nccl_tf.streams.sources.mini_imagenet.source import CACHE_NAMES, LAYOUTS, SIDE, Source

_NAME = "mini_imagenet"


def load_mini_imagenet(
    data_dir: str | os.PathLike | None = None, manual_dir: str | os.PathLike | None = None
) -> tuple[Examples, Examples]:
    """Load the training and test examples of a user's mini-ImageNet.

    100 classes of ImageNet (Vinyals et al., 2016), each in both training and test: images uint8
    [n, 84, 84, 3], RGB, and labels int32 [n], classes numbered in sorted order of their names. A
    source without training and test parts of the same classes is split per class in file order: the
    first 5/6 train, the last 1/6 test (500/100 of 600).

    Args:
        data_dir: TFDS's data folder, where decoded images are kept for the next process
            (`sources/decoded.py`); None for TFDS's default.
        manual_dir: Folder with the user's files, or with a folder mini_imagenet that has them; None
            for TFDS's default, <data folder>/downloads/manual.

    Raises:
        UserError: The files are missing, broken or of another layout.
    """
    root = data_folder(data_dir)
    folder = Path(os.path.expanduser(manual_dir or root / "downloads" / "manual"))
    folder = folder / _NAME if (folder / _NAME).is_dir() else folder
    if kept := read_decoded(_NAME, root, made_of=folder):
        return kept
    source = read_source(folder)
    train, test = _read(source, source.train), _read(source, source.test)
    keep_decoded(_NAME, root, train, test, made_of=folder)
    return train, test


def read_source(folder: Path) -> Source:
    """Detect the layout of a folder's files and list their images.

    Raises:
        UserError: There are none, or they are of another layout, incomplete or broken.
    """
    entries = list_visible(folder) if folder.is_dir() else []
    names = {path.name for path in entries if path.suffix in (".pkl", ".pickle")}
    if names and (names >= set(CACHE_NAMES) or len(names - set(CACHE_NAMES)) == len(names) == 1):
        chosen = CACHE_NAMES if names >= set(CACHE_NAMES) else sorted(names)
        return read_pickles([folder / name for name in chosen])
    if names:
        raise UserError(
            f"{folder} has the pickles {', '.join(sorted(names))}: expected one of all images, or "
            f"{', '.join(CACHE_NAMES)}, which together have the 100 classes; add or remove some"
        )
    if any(path.is_dir() for path in entries):
        return read_folder(folder)
    raise UserError(
        f"no mini-ImageNet in {folder}, which is {'of another layout' if entries else 'empty'} or "
        f"missing: put there {LAYOUTS}, or name their folder with --manual_dir; the digits streams "
        "need no files"
    )


def _read(source: Source, examples: list[tuple[Any, int]]) -> Examples:
    images = np.empty((len(examples), SIDE, SIDE, 3), np.uint8)
    for row, (key, _) in enumerate(examples):
        images[row] = source.read(key)
    return Examples(images, np.array([number for _, number in examples], np.int32))
