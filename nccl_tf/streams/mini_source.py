"""Where a user's mini-ImageNet files are, in which of the layouts, and which images they hold."""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError

SIDE = 84
CACHE_NAMES = tuple(f"mini-imagenet-cache-{part}.pkl" for part in ("train", "val", "test"))
LAYOUTS = (
    "one pickle (*.pkl, *.pickle) of {images, labels}, the three pickles "
    f"{', '.join(CACHE_NAMES)}, or a folder of images by class, with or without train/ and test/"
)


class Source(NamedTuple):
    """The images of a source, numbered, before any is read.

    Args:
        classes: Names of the classes in the order of their numbers.
        train: Image and class number of each training example; what an image's key is, only `read`
            knows.
        test: The same of each test example.
        read: Returns the image of a key, uint8 [84, 84, 3], RGB.
    """

    classes: tuple[str, ...]
    train: list[tuple[Any, int]]
    test: list[tuple[Any, int]]
    read: Callable[[Any], np.ndarray]


def cut_classes(where: Path, members: dict, read: Callable[[Any], np.ndarray]) -> Source:
    """Number the classes in sorted order and cut each in file order: 5/6 train, 1/6 test.

    Args:
        where: The file or folder, for the message.
        members: The images' keys by class name, in file order.
        read: Returns the image of a key.

    Raises:
        UserError: A class has fewer than two images, or a name that cannot be kept.
    """
    classes = sorted(members)
    names = class_names(where, classes)
    train, test = [], []
    for number, name in enumerate(classes):
        keys = list(members[name])
        if len(keys) < 2:
            raise UserError(
                f"mini-ImageNet class {str(name)!r} in {where} has {len(keys)} images: expected at "
                f"least 2, to cut it into training and test images; complete the class"
            )
        first_test = len(keys) - max(1, len(keys) // 6)
        train += [(key, number) for key in keys[:first_test]]
        test += [(key, number) for key in keys[first_test:]]
    return Source(names, train, test, read)


def class_names(where: Path, names: Iterable[object]) -> tuple[str, ...]:
    """The names as text.

    Raises:
        UserError: A name would not come back from a text file with a name a line, as which TFDS
            keeps them.
    """
    result = tuple(map(str, names))
    for name in result:
        if not name.isprintable() or name != name.strip() or not name:
            raise UserError(
                f"a class in {where} is named {name!a}: expected a name of printable characters "
                "that neither begins nor ends with a blank; rename it"
            )
    return result


def locate(manual_dir: str | os.PathLike) -> Path:
    """The folder that holds the files.

    This is `manual_dir`/mini_imagenet if there is one (TFDS's own folder is shared by many sets),
    else `manual_dir`; a folder with nothing but one folder in it stands for that one, as archives
    often unpack so.

    Raises:
        UserError: There is no such folder, or it is empty.
    """
    folder = Path(os.path.expanduser(manual_dir))
    own = folder / "mini_imagenet"
    folder = own if os.path.isdir(own) else folder
    if not os.path.isdir(folder) or not visible(folder):
        raise UserError(
            f"no mini-ImageNet files in {folder}, which is missing or empty: put there {LAYOUTS}, "
            f"or give their folder as --manual_dir; the digits streams need no files"
        )
    while len(entries := visible(folder)) == 1 and entries[0].is_dir():
        if not visible(entries[0]) or any(path.is_file() for path in visible(entries[0])):
            break
        folder = entries[0]
    return folder


def visible(folder: Path) -> list[Path]:
    """The folder's entries in sorted order, without hidden ones.

    Raises:
        UserError: The folder cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(
            f"cannot read the folder {folder} ({error.strerror}): expected one that can be "
            "listed; change its permissions, or give another --manual_dir"
        ) from error


def read_source(folder: Path) -> Source:
    """Find out the layout of a folder's files, and which images it holds.

    Raises:
        UserError: The files are of none of the layouts, incomplete or broken.
    """
    from nccl_tf.streams import mini_folder, mini_pickles

    entries = visible(folder)
    caches = [name for name in CACHE_NAMES if (folder / name).is_file()]
    pickles = [path for path in entries if path.suffix in (".pkl", ".pickle")]
    if caches:
        if missing := sorted(set(CACHE_NAMES) - set(caches)):
            raise UserError(
                f"{folder} has {', '.join(caches)} but not {', '.join(missing)}: the three "
                f"together give the 100 classes; add what is missing"
            )
        return mini_pickles.read_caches([folder / name for name in CACHE_NAMES])
    if len(pickles) > 1:
        raise UserError(
            f"{folder} has {len(pickles)} pickles ({', '.join(path.name for path in pickles)}): "
            f"expected {LAYOUTS}; leave one of them there"
        )
    if pickles:
        return mini_pickles.read_single(pickles[0])
    if any(path.is_dir() for path in entries):
        return mini_folder.read_folder(folder)
    raise UserError(f"no mini-ImageNet in {folder}: looked for {LAYOUTS}; put one of these there")


def fingerprint(folder: Path) -> str:
    """12 hex digits that change with the folder's files: names, sizes and times of change.

    Prepared data are kept under this name, so that those of another source are not taken for them.
    """
    digest = hashlib.sha256()
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            file = Path(path, name)
            # A link that leads nowhere has a name and a time too.
            status = file.stat() if file.exists() else file.lstat()
            digest.update(
                os.fsencode(file.relative_to(folder))
                + f"\0{status.st_size}\0{status.st_mtime_ns}\n".encode()
            )
    return digest.hexdigest()[:12]
