"""mini-ImageNet as a folder of images, one folder per class."""

import logging
import os
from pathlib import Path

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.image_files import SUFFIXES, check_taken, list_visible, read_image
from nccl_tf.streams.sources.mini_imagenet.source import (
    LAYOUTS,
    SIDE,
    Source,
    check_class_names,
    split_train_test,
)

PARTS = ("train", "val", "test")
_LOGGER = logging.getLogger("nccl_tf")


def read_folder(folder: Path) -> Source:
    """List the images of a folder with one folder per class, or with such folders in train/, test/.

    Training and test parts with the same classes are kept (a val/ part with these classes adds to
    the training images). Parts with disjoint classes, the few-shot split, are merged and split per
    class, as is a folder without parts.

    Raises:
        UserError: No class folders, a class without images or with an unsupported name, images that
            would be left out, a link that leaves the folder, or parts that share only some classes.
    """
    _check_links(folder)
    roots = [folder / part for part in PARTS if (folder / part).is_dir()]
    parts = [_list_class_images(root) for root in roots or [folder]]
    taken = [file for part in parts for files in part.values() for file in files]
    left_out = check_taken(f"mini-ImageNet in {folder}", folder, roots or [folder], taken)
    if left_out:
        _LOGGER.warning("%s", left_out)
    if not roots:
        return split_train_test(folder, parts[0], _read)
    members: dict[str, list[Path]] = {}
    for part in parts:
        for name, files in part.items():
            members.setdefault(name, []).extend(files)
    if sum(map(len, parts)) == len(members):
        return split_train_test(folder, members, _read)
    test_part = parts[-1] if (folder / "test").is_dir() else {}
    train_classes = set().union(*parts[:-1])
    if unmatched := sorted(train_classes ^ set(test_part)):
        raise UserError(
            f"the class {unmatched[0]!r} is in only one of the training and test parts of "
            f"{folder}: expected the same classes in both, or disjoint classes; complete the class"
        )
    classes = check_class_names(folder, sorted(members))
    number = {name: index for index, name in enumerate(classes)}
    train = [
        (file, number[name])
        for name in classes
        for part in parts[:-1]
        for file in part.get(name, ())
    ]
    test = [(file, number[name]) for name in classes for file in test_part[name]]
    return Source(classes, train, test, _read)


def _read(path: Path) -> np.ndarray:
    return read_image(path, SIDE)


def _check_links(folder: Path) -> None:
    """Refuse links out of the folder: an untrusted archive could link to any file."""
    root = folder.resolve()
    for path, folders, files in os.walk(folder):
        for entry in (Path(path, name) for name in (*folders, *files)):
            if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(root):
                raise UserError(
                    f"{entry} is a link that leaves {folder}: expected links within the folder "
                    "only; replace the link by the file"
                )


def _list_class_images(folder: Path) -> dict[str, list[Path]]:
    """The sorted image files of each class folder, by its name."""
    members: dict[str, list[Path]] = {}
    for path in list_visible(folder):
        if path.is_dir():
            files = [f for f in list_visible(path) if f.suffix.lower() in SUFFIXES and f.is_file()]
            if not files:
                raise UserError(
                    f"the class folder {path} has no images ({', '.join(SUFFIXES)}): expected "
                    f"{LAYOUTS}; add images or remove the folder"
                )
            members[path.name] = files
    if not members:
        raise UserError(f"{folder} has no class folders: expected {LAYOUTS}")
    return members
