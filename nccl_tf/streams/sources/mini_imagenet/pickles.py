"""mini-ImageNet as one pickle, or as the three cache pickles of few-shot learning."""

import reprlib
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet.restricted_pickle import load_pickle
from nccl_tf.streams.sources.mini_imagenet.source import (
    MAX_NAME,
    SIDE,
    Source,
    split_train_test,
)


def read_single(path: Path) -> Source:
    """Read a pickle {"images": [N, 84, 84, 3], "labels": [N]} and split it per class.

    Raises:
        UserError: The file is broken or has other contents.
    """
    images, labels = _read_fields(path, ("images", "labels"))
    images = _check_images(path, images)
    labels = _as_row(labels)
    if labels is None or len(labels) != len(images) or labels.dtype.kind not in "iuSU":
        shown = "not a list" if labels is None else f"{len(labels)} of type {labels.dtype}"
        raise UserError(
            f"the labels in {path} are {shown}: expected {len(images)} integers or names, one for "
            "each image; save them in that form"
        )
    members = {name: np.flatnonzero(labels == name).tolist() for name in np.unique(labels).tolist()}
    return split_train_test(path, members, images.__getitem__)


def read_caches(paths: list[Path]) -> Source:
    """Read pickles {"image_data": [n, 84, 84, 3], "class_dict": {name: [indices]}}.

    The classes of all files are merged, and each is split into training and test images.

    Raises:
        UserError: A file is broken or has other contents, or two files share a class.
    """
    files, members = [], {}
    for number, path in enumerate(paths):
        images, class_dict = _read_fields(path, ("image_data", "class_dict"))
        images = _check_images(path, images)
        files.append(images)
        if not isinstance(class_dict, dict):
            raise UserError(
                f"the class_dict in {path} is a {type(class_dict).__name__}: expected a dictionary "
                f"from class names to lists of indices"
            )
        unused = len(images)
        for name, indices in class_dict.items():
            shown = reprlib.repr(str(name))
            if str(name) in members:
                raise UserError(
                    f"class {shown} of {path} is also in another cache file: expected "
                    "disjoint classes; use three files from one source"
                )
            rows = _as_row(indices)
            unused -= 0 if rows is None else len(rows)
            if unused < 0:
                raise UserError(
                    f"the classes in {path} have more indices than there are images, "
                    f"{len(images)}: expected each image in one class; save the file again"
                )
            if (
                rows is None
                or not rows.size
                or rows.dtype.kind not in "iu"
                or rows.min() < 0
                or rows.max() >= len(images)
            ):
                raise UserError(
                    f"class {shown} in {path} has indices that match no image: expected a "
                    f"list of integers from 0 to {len(images) - 1}; save the file again"
                )
            members[str(name)] = [(number, row) for row in rows.tolist()]

    def read(key: tuple[int, int]) -> np.ndarray:
        return files[key[0]][key[1]]

    return split_train_test(paths[0].parent, members, read)


def _as_row(values: Any) -> np.ndarray | None:
    """Convert a list of numbers or names to an array [n]; None for anything else.

    The items are checked first, because NumPy would follow nested lists without end, and give each
    name the room of the longest.
    """
    if isinstance(values, np.ndarray):
        return np.asarray(values) if values.ndim == 1 else None
    plain = isinstance(values, (list, tuple)) and all(map(_is_plain, values))
    return np.array(values) if plain else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return len(value) <= MAX_NAME
    return isinstance(value, np.generic) or (isinstance(value, int) and abs(value) < 2**63)


def _read_fields(path: Path, names: tuple[str, str]) -> tuple[Any, Any]:
    """Read two entries of the dictionary in a pickle."""
    content = load_pickle(path)
    if not isinstance(content, dict) or not set(names) <= set(content):
        shown = reprlib.repr(list(content)) if isinstance(content, dict) else type(content).__name__
        raise UserError(f"the pickle {path} holds {shown}: expected a dictionary with {names}")
    return content[names[0]], content[names[1]]


def _check_images(path: Path, images: Any) -> np.ndarray:
    """Return the images as uint8 [n, 84, 84, 3]; values 0..255 of other dtypes are rounded."""
    if not isinstance(images, np.ndarray) or images.dtype.kind not in "iuf":
        raise UserError(f"the images in {path} are not an array of numbers: expected uint8")
    if images.shape[1:] != (SIDE, SIDE, 3) or not len(images):
        raise UserError(
            f"the images in {path} have shape {images.shape}: expected [N, {SIDE}, {SIDE}, 3]"
        )
    images = np.asarray(images)
    if images.dtype == np.uint8:
        return images
    low, high = images.min(), images.max()
    if not (low >= 0 and 1 < high <= 255):
        raise UserError(
            f"the pixels in {path} are {images.dtype} from {low} to {high}: expected 0 to 255; "
            f"save them as uint8"
        )
    return np.round(images).astype(np.uint8)
