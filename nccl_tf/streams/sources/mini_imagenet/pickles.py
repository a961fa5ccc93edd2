"""mini-ImageNet as one pickle, or as the three cache pickles of few-shot learning."""

import reprlib
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet.restricted_pickle import load_pickle
from nccl_tf.streams.sources.mini_imagenet.source import SIDE, Source, split_train_test


def read_pickles(paths: list[Path]) -> Source:
    """Read pickles of images [n, 84, 84, 3], merge their classes and split each.

    They hold {"images": images, "labels": [n]}, or {"image_data": images, "class_dict": {name:
    [indices]}}. Images of other dtypes than uint8, with values from 0 to 255, are rounded.

    Raises:
        UserError: A file is broken or has other contents, or two files share a class.
    """
    files, members = [], {}
    for number, path in enumerate(paths):
        images, classes = _read(path)
        files.append(images)
        unused = len(images)
        for name, indices in classes.items():
            rows, shown = _row(indices), reprlib.repr(str(name))
            if name in members:
                raise UserError(
                    f"class {shown} of {path} is also in another cache file: expected "
                    "disjoint classes; use three files from one source"
                )
            if not rows or type(rows[0]) is not int or min(rows) < 0 or max(rows) >= len(images):
                raise UserError(
                    f"class {shown} in {path} has indices that match no image: expected a "
                    f"list of integers from 0 to {len(images) - 1}; save the file again"
                )
            unused -= len(rows)
            if unused < 0:
                raise UserError(
                    f"the classes in {path} have more indices than there are images, "
                    f"{len(images)}: expected each image in one class; save the file again"
                )
            members[name] = [(number, row) for row in rows]
    return split_train_test(paths[0].parent, members, lambda key: files[key[0]][key[1]])


def _read(path: Path) -> tuple[np.ndarray, dict]:
    """The images of a file, uint8 [n, 84, 84, 3], and the indices of each class."""
    content = load_pickle(path)
    keys = set(content) if isinstance(content, dict) else set()
    if {"image_data", "class_dict"} <= keys:
        images, classes = content["image_data"], content["class_dict"]
        if not isinstance(classes, dict) or not all(isinstance(name, str) for name in classes):
            raise UserError(
                f"the class_dict in {path} is no dictionary from class names to lists of indices: "
                "save it in that form"
            )
    elif {"images", "labels"} <= keys:
        images, classes = content["images"], {}
        labels = _row(content["labels"])
        count = len(images) if isinstance(images, np.ndarray) and images.ndim else None
        if labels is None or len(labels) != count:
            raise UserError(
                f"the labels in {path} are no row of integers or names, one for each image: save "
                "them in that form"
            )
        for row, label in enumerate(labels):
            classes.setdefault(label, []).append(row)
    else:
        shown = reprlib.repr(list(content)) if keys else type(content).__name__
        raise UserError(
            f"the pickle {path} holds {shown}: expected a dictionary with images and labels, or "
            "with image_data and class_dict; save it in that form"
        )
    if not isinstance(images, np.ndarray) or images.dtype.kind not in "iuf":
        raise UserError(f"the images in {path} are not an array of numbers: expected uint8")
    if images.shape[1:] != (SIDE, SIDE, 3) or not len(images):
        raise UserError(
            f"the images in {path} have shape {images.shape}: expected [N, {SIDE}, {SIDE}, 3]"
        )
    if images.dtype == np.uint8:
        return np.asarray(images), classes
    low, high = images.min(), images.max()
    if not (low >= 0 and 1 < high <= 255):
        raise UserError(
            f"the pixels in {path} are {images.dtype} from {low} to {high}: expected 0 to 255; "
            f"save them as uint8"
        )
    return np.asarray(np.round(images)).astype(np.uint8), classes


def _row(values: Any) -> list | None:
    """A row of numbers, or of names, as a list; None for anything else."""
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, (list, tuple)):
        return None
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    return values if {type(value) for value in values} in ({int}, {str}, {bytes}) else None
