"""mini-ImageNet as a folder of images, one folder per class."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.regular_files import open_regular
from nccl_tf.streams.sources.mini_imagenet.source import (
    LAYOUTS,
    SIDE,
    Source,
    check_class_names,
    list_visible,
    split_train_test,
)

PARTS = ("train", "val", "test")
MAX_PIXELS = 50_000_000
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp")


def read_folder(folder: Path) -> Source:
    """List the images of a folder with one folder per class, or with such folders in train/, test/.

    Training and test parts with the same classes are kept (a val/ part with these classes adds to
    the training images). Parts with disjoint classes, the few-shot split, are merged and split per
    class, as is a folder without parts.

    Raises:
        UserError: No class folders, a class without images or with an unsupported name, a link that
            leaves the folder, or parts that share only some classes.
    """
    _check_links(folder)
    parts = [_list_class_images(folder / part) for part in PARTS if (folder / part).is_dir()]
    if not parts:
        return split_train_test(folder, _list_class_images(folder), read_image)
    members: dict[str, list[Path]] = {}
    for part in parts:
        for name, files in part.items():
            members.setdefault(name, []).extend(files)
    if sum(map(len, parts)) == len(members):
        return split_train_test(folder, members, read_image)
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
    return Source(classes, train, test, read_image)


def read_image(path: Path, side: int | None = SIDE) -> np.ndarray:
    """Read an image file as uint8 [side, side, 3], RGB.

    An image of another size is resized by TensorFlow's antialiased bilinear filter, without
    preserving the aspect ratio, as mini-ImageNet was made.

    Args:
        path: The file.
        side: Of the image in pixels; None for the size that it has.

    Raises:
        UserError: The file cannot be read, is not an image, or is too large.
    """
    import tensorflow as tf

    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > 4 * MAX_PIXELS:
                raise UserError(_too_large(path, f"has {size:,} bytes"))
            data = file.read(size)
        width, height = _read_size(data)
        if width * height > MAX_PIXELS:
            raise UserError(_too_large(path, f"claims {width} x {height} pixels"))
        image = tf.io.decode_image(data, channels=3, expand_animations=False)
    except (tf.errors.OpError, OSError) as error:
        raise UserError(
            f"the image file {path} is broken ({type(error).__name__}): expected a JPEG, PNG or "
            f"BMP image; get it again or remove it"
        ) from error
    return (image if side is None else resized(image, side)).numpy()


def resized(image: Any, side: int) -> Any:
    """An image uint8 [h, w, c] as [side, side, c]."""
    import tensorflow as tf

    if image.shape[:2] == (side, side):
        return image
    values = tf.image.resize(image, (side, side), method="bilinear", antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(values), 0, 255), tf.uint8)


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


def _too_large(path: Path, size: str) -> str:
    return (
        f"the image file {path} {size}: expected at most {MAX_PIXELS:,} pixels; scale it down or "
        "remove it"
    )


def _read_size(data: bytes) -> tuple[int, int]:
    """Read width and height from the header, before memory of that size is allocated.

    Raises:
        OSError: The data are not a JPEG, PNG or BMP image.
    """
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "BMP")) as image:
            return image.size
    except Exception as error:  # A broken header can raise any error.
        raise OSError("no image") from error
