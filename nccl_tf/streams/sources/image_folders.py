"""Images of a user, in folders of classes or in lists of files."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from nccl_tf.errors import UserError
from nccl_tf.regular_files import open_regular
from nccl_tf.streams.arrays import in_one_form
from nccl_tf.streams.sources.image_files import SUFFIXES, checked_taken, list_visible

TEST_NAMES = ("test", "val", "validation")
"""Folders, and splits of TFDS, with test examples; the first that is there is taken."""
_MAX_BYTES = 2**28
_MOST_DIGITS = 100
"""Of a class that is a number: Python reads no int of 5,000."""
_ANNOTATIONS = "val_annotations.txt"


class Members(NamedTuple):
    """The images of each class.

    Args:
        train: The files by class; of all examples, where there are none for the test.
        test: Likewise for the test.
        names: The names of the classes, in the order of their numbers.
        lists: The files that name classes: lists of images, or tiny-ImageNet's annotations.
        left_out: What there is to say of files below the folder that are not read, and of links
            that lead out of it; None for nothing.
    """

    train: dict[str, list[Path]]
    test: dict[str, list[Path]]
    names: tuple[str, ...]
    lists: list[Path]
    left_out: str | None = None

    @property
    def images(self) -> list[Path]:
        """All images, by part and class."""
        parts = (self.train, self.test)
        return [path for part in parts for paths in part.values() for path in paths]


def list_members(scheme: str, path: Path) -> Members:
    """List the images of a folder ("folder") or of lists of images ("list").

    Args:
        scheme: "folder" or "list".
        path: The folder, or the file with lines "path label".

    Raises:
        UserError: There are none, a file of the data set would be left out without being noticed,
            or one is a pipe, a device or a link to nothing.
    """
    members = _listed_members(path) if scheme == "list" else _folder_members(path)
    for file in members.images:  # Not `Path.is_file`, which raises for a name that is too long.
        if not os.path.isfile(file):
            what = "is a pipe, a device or a folder" if os.path.exists(file) else "is not there"
            raise UserError(
                f"the image file {file} {what}: expected the images that {scheme}:{path} names; "
                "correct the name, or get the file again"
            )
    return members


def files_of_parts(path: Path, ending: str) -> tuple[list[Path], str | None]:
    """The files of a data set, one for training and one for the test, or one for both.

    Args:
        path: The file, or the folder with train and test.
        ending: "txt" or "csv".

    Returns:
        The files, and a sentence on other files with this ending in the folder; None without any.
    """
    if not os.path.isdir(path):
        return [path], None
    files = [path / f"{part}.{ending}" for part in ("train", "test")]
    others = [file.name for file in list_visible(path) if file.suffix.lower() == f".{ending}"]
    others = [name for name in others if name not in (file.name for file in files)]
    if not others:
        return files, None
    return files, f"{path} has {', '.join(others)} beside train.{ending} and test.{ending}, unread"


# ---- lists -------------------------------------------------------------------------------------


def _listed_members(path: Path) -> Members:
    files, left_out = files_of_parts(path, "txt")
    train, *others = map(_read_list, files)
    test = others[0] if others else {}
    forms = in_one_form({*train, *test})
    train, test = (_renamed(part, forms) for part in (train, test))
    names = sorted({*train, *test})
    # Numbers in order: 10 comes after 9.
    if all(name.isdecimal() and len(name) <= _MOST_DIGITS for name in names):
        names.sort(key=int)
    return Members(train, test, tuple(names), files, left_out)


def _renamed(members: dict[str, list[Path]], names: Mapping[str, str]) -> dict[str, list[Path]]:
    """The images of each class by its other name, which several may have."""
    renamed: dict[str, list[Path]] = {}
    for label, images in members.items():
        renamed.setdefault(names[label], []).extend(images)
    return renamed


def _read_list(path: Path) -> dict[str, list[Path]]:
    """The images of each class in a file with lines "path label"."""
    members: dict[str, list[Path]] = {}
    for name, label in _pairs(path, lambda line: line.rsplit(maxsplit=1)):
        members.setdefault(label, []).append(path.parent / name.strip())
    if not members:
        raise UserError(f"{path} lists no images: expected lines with a path and a label")
    return members


def _pairs(path: Path, cut: Callable[[str], list[str]]) -> list[tuple[str, str]]:
    """An image and its label of each line of a file, in whose parts a line is `cut`."""
    try:
        with open_regular(path, _MAX_BYTES) as file:
            lines = file.read().decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path} ({error}): expected a file in UTF-8 with an image and its label "
            "on each line"
        ) from error
    rows = [cut(line) for line in lines if line.strip()]
    for row in rows:
        if len(row) < 2:
            raise UserError(
                f"{path} has the line {row[0][:40]!r}: expected an image and its label on each line"
            )
    return [(row[0], row[1]) for row in rows]


# ---- folders -----------------------------------------------------------------------------------


def _folder_members(folder: Path) -> Members:
    if not os.path.isdir(folder):
        raise UserError(f"folder:{folder} is no folder: name one with train/CLASS/ and test/CLASS/")
    annotated = _annotated(folder / "val")
    parts, test = [folder], {}
    if (folder / "train").is_dir():
        parts = [folder / "train"]
        names = [name for name in TEST_NAMES if class_images(folder / name)]
        if annotated or names:
            parts.append(folder / ("val" if annotated else names[0]))
            test = annotated or class_images(parts[-1])
    train = class_images(parts[0])
    if not train:
        raise UserError(
            f"folder:{folder} has no images ({', '.join(SUFFIXES)}) in folders of classes: "
            "expected train/CLASS/ and test/CLASS/, or CLASS/"
        )
    lists = [folder / "val" / _ANNOTATIONS] if annotated and test else []
    members = Members(train, test, tuple(sorted({*train, *test})), lists)
    left_out = checked_taken(f"folder:{folder}", folder, parts, [*members.images, *lists])
    return members._replace(left_out=left_out)


def class_images(folder: Path) -> dict[str, list[Path]]:
    """The images of each class, which lie in its folder or in the folder `images` of that."""
    members: dict[str, list[Path]] = {}
    for path in list_visible(folder) if os.path.isdir(folder) else ():
        inner = path / "images" if (path / "images").is_dir() else path
        files = list_visible(inner) if os.path.isdir(inner) else []
        files = [file for file in files if file.suffix.lower() in SUFFIXES and os.path.isfile(file)]
        if files:
            members[path.name] = files
    return members


def _annotated(folder: Path) -> dict[str, list[Path]]:
    """The images of each class of tiny-ImageNet's val/, whose classes stand in a file."""
    path = folder / _ANNOTATIONS
    members: dict[str, list[Path]] = {}
    if not os.path.isfile(path):
        return {}
    for name, label in _pairs(path, lambda line: line.split("\t")):
        members.setdefault(label, []).append(folder / "images" / name)
    return {label: sorted(files) for label, files in members.items()}
