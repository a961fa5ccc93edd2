"""Files of images, as both readers of folders take them: bounded before they are decoded."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.regular_files import open_regular

MAX_PIXELS = 50_000_000
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp")


def read_image(path: Path, side: int | None = None) -> np.ndarray:
    """Read an image file as uint8 [height, width, 3], RGB.

    An image of another size is resized by TensorFlow's antialiased bilinear filter, without
    preserving the aspect ratio, as mini-ImageNet was made.

    Args:
        path: The file.
        side: Height and width in pixels; None for those that it has.

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


def list_visible(folder: Path) -> list[Path]:
    """List the entries of a folder in sorted order, without hidden ones.

    Raises:
        UserError: The folder cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(
            f"cannot read the folder {folder} ({error.strerror}): expected a folder that can be "
            "listed; change its permissions, or name another folder"
        ) from error


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
