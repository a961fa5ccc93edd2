"""mini-ImageNet as a folder of images by class."""

import io
import os
from pathlib import Path

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet.source import (
    LAYOUTS,
    SIDE,
    Source,
    check_class_names,
    list_visible,
    split_train_test,
)

PARTS = ("train", "val", "test")
MOST_PIXELS = 50_000_000
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp")


def read_folder(folder: Path) -> Source:
    """The images of a folder with a folder per class, or with such folders in train/ and test/.

    Training and test parts with the same classes are taken as they are (a val/ part with them adds
    to the training images). Parts with classes of their own, the few-shot split, are put together
    and cut per class, as is a folder without parts.

    Raises:
        UserError: No class folders, a class without images or with a name that cannot be kept, a
            link that leaves the folder, or parts that share some classes only.
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
    tested = parts[-1] if (folder / "test").is_dir() else {}
    trained = set().union(*parts[:-1])
    if odd := sorted(trained ^ set(tested)):
        raise UserError(
            f"the class {odd[0]!r} is in only one of the training and test parts of {folder}: "
            f"expected the same classes in both, or none in common; complete the class"
        )
    classes = check_class_names(folder, sorted(members))
    number = {name: index for index, name in enumerate(classes)}
    train = [
        (file, number[name])
        for name in classes
        for part in parts[:-1]
        for file in part.get(name, ())
    ]
    test = [(file, number[name]) for name in classes for file in tested[name]]
    return Source(classes, train, test, read_image)


def _check_links(folder: Path) -> None:
    """Refuse links out of the folder: whoever packed it could name any file of this machine."""
    root = folder.resolve()
    for path, folders, files in os.walk(folder):
        for entry in (Path(path, name) for name in (*folders, *files)):
            if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(root):
                raise UserError(
                    f"{entry} is a link that leaves {folder}: expected links within it only; put "
                    "the files themselves there"
                )


def _list_class_images(folder: Path) -> dict[str, list[Path]]:
    """The image files, sorted, by the name of their class folder."""
    members: dict[str, list[Path]] = {}
    for path in list_visible(folder):
        if path.is_dir():
            files = [f for f in list_visible(path) if f.suffix.lower() in SUFFIXES and f.is_file()]
            if not files:
                raise UserError(
                    f"the class folder {path} has no images ({', '.join(SUFFIXES)}): expected "
                    f"{LAYOUTS}; fill or remove it"
                )
            members[path.name] = files
    if not members:
        raise UserError(f"{folder} has no class folders: expected {LAYOUTS}")
    return members


def read_image(path: Path) -> np.ndarray:
    """Read an image file as uint8 [84, 84, 3], RGB.

    An image of another size is resized by TensorFlow's antialiased bilinear filter, without keeping
    its aspect ratio, as mini-ImageNet itself was made; one of 84x84 is left as it is.

    Raises:
        UserError: The file cannot be read, is no image, or too large a one.
    """
    import tensorflow as tf

    try:
        if path.stat().st_size > 4 * MOST_PIXELS:
            raise UserError(_too_large(path, f"has {path.stat().st_size:,} bytes"))
        data = path.read_bytes()
        width, height = _read_size(data)
        if width * height > MOST_PIXELS:
            raise UserError(_too_large(path, f"claims {width} x {height} pixels"))
        image = tf.io.decode_image(data, channels=3, expand_animations=False)
    except (tf.errors.OpError, OSError) as error:
        raise UserError(
            f"the image file {path} is broken ({type(error).__name__}): expected a JPEG, PNG or "
            f"BMP image; get it again or remove it"
        ) from error
    if image.shape[:2] != (SIDE, SIDE):
        resized = tf.image.resize(image, (SIDE, SIDE), method="bilinear", antialias=True)
        image = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
    return image.numpy()


def _too_large(path: Path, found: str) -> str:
    return (
        f"the image file {path} {found}: expected at most {MOST_PIXELS:,} pixels; scale it down or "
        "remove it"
    )


def _read_size(data: bytes) -> tuple[int, int]:
    """Width and height that an image file claims, before anything of that size is allocated.

    Raises:
        OSError: The data are no JPEG, PNG or BMP image.
    """
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "BMP")) as image:
            return image.size
    except Exception as error:  # A broken header has many ways to fail.
        raise OSError("no image") from error
