"""mini-ImageNet as image files: a folder per class, or lists of them in CSV files."""

import logging
from pathlib import Path

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.csv_files import read_table
from nccl_tf.streams.sources.image_files import checked_taken, list_visible, read_image
from nccl_tf.streams.sources.image_folders import class_images
from nccl_tf.streams.sources.mini_imagenet.source import LAYOUTS, SIDE, Source, split_train_test

_PARTS = ("train", "val", "test")
_LOGGER = logging.getLogger("nccl_tf")
Members = dict[str, list[Path]]


def read_folder(folder: Path) -> Source:
    """List the images of class folders, which may lie in train/, val/ and test/, or of CSV files.

    The CSV files train.csv, val.csv and test.csv have the columns filename, of an image in images/,
    and label. Of parts with the same classes the last is for the test. Parts with disjoint classes,
    the few-shot split, are merged and split per class, as is a folder without parts.

    Raises:
        UserError: No classes, a class without images, images that would be left out, or parts that
            share only some classes.
    """
    lists = [folder / f"{part}.csv" for part in _PARTS if (folder / f"{part}.csv").is_file()]
    roots = [folder / part for part in _PARTS if (folder / part).is_dir()] or [folder]
    roots = [folder / "images"] if lists else roots
    parts = [_listed(path) for path in lists] or [_by_class(root) for root in roots]
    taken = [file for part in parts for files in part.values() for file in files]
    if left_out := checked_taken(f"mini-ImageNet in {folder}", folder, roots, [*taken, *lists]):
        _LOGGER.warning("%s", left_out)
    members: Members = {}
    for part in parts:
        for name, files in part.items():
            members.setdefault(name, []).extend(files)
    if sum(map(len, parts)) == len(members):
        return split_train_test(folder, members, _read)
    *for_training, test = parts
    if unmatched := sorted(set().union(*for_training) ^ set(test)):
        raise UserError(
            f"the class {unmatched[0]!r} is in only one of the training and test parts of "
            f"{folder}: expected the same classes in both, or disjoint classes; complete the class"
        )
    numbers = {name: number for number, name in enumerate(sorted(members))}
    train, tested = (
        [(f, numbers[name]) for name in numbers for part in chosen for f in part.get(name, ())]
        for chosen in (for_training, [test])
    )
    return Source(train, tested, _read)


def _read(path: Path) -> np.ndarray:
    return read_image(path, SIDE)


def _by_class(folder: Path) -> Members:
    """The sorted image files of each class folder, by its name."""
    members = class_images(folder)
    empty = [path for path in list_visible(folder) if path.is_dir() and path.name not in members]
    if empty or not members:
        what = f"the class folder {empty[0]} has no images" if empty else f"{folder} has no classes"
        raise UserError(f"{what}: expected {LAYOUTS}; add images or remove the folder")
    return members


def _listed(path: Path) -> Members:
    """The image files of each class in a CSV file, in its order."""
    columns = read_table(path).columns
    if not {"filename", "label"} <= set(columns):
        raise UserError(
            f"{path} has the columns {', '.join(columns)}: expected filename, of an image in "
            "images/, and label; name its columns so"
        )
    members: Members = {}
    for name, label in zip(columns["filename"], columns["label"], strict=True):
        members.setdefault(label, []).append(path.parent / "images" / name)
    return members
