"""Files of images, as both readers of folders take them: bounded before they are decoded."""

import errno
import io
import mimetypes
import os
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.errors import UserError, one_line
from nccl_tf.regular_files import open_regular

MAX_PIXELS = 50_000_000
FORMATS = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "WEBP": (".webp",),
    "TIFF": (".tif", ".tiff"),
}
"""The formats that are read, by Pillow's names, and the endings of their files."""
SUFFIXES = tuple(suffix for suffixes in FORMATS.values() for suffix in suffixes)
_BY_PILLOW = ("WEBP", "TIFF")
"""Formats that TensorFlow does not decode, or not when they move."""
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
"""Modes of Pillow with 8 bits a channel at most, which become RGB without cutting values off."""
_PNG_BIT_DEPTH = 24
"""Its place in a file, in the header that comes first."""
_TIFF_BITS_PER_SAMPLE = 258
_TIFF_TILE = 322, 323
"""Tags of the width and the height of a tile."""
_JPEG = b"\xff\xd8\xff"
_JPEG_SCAN = b"\xff\xda"
_MOST_SCANS = 32
"""Of the largest image, and more of smaller ones: each scan may go over all pixels, and need no
more than a few bytes for it; images in use have some ten."""
_GIF_HEADER = 13
_GIF_EXTENSION, _GIF_FRAME = b"!,"
_GIF_CONTROL = 0xF9
"""Of the extension that has the transparent colour, in one block of four bytes."""
_GIF_CONTROL_BYTES = 8
_OF_SYSTEMS = ("__MACOSX", "Thumbs.db", "desktop.ini")
"""Visible entries that operating systems leave in folders."""
_MOST_SHOWN = 4


def read_image(path: Path, side: int | None = None) -> np.ndarray:
    """Read an image file as uint8 [height, width, 3], RGB: of a moving image the first frame.

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
            data = _first_frame(file.read(size))
        if data.startswith(_JPEG):  # Pillow joins a long EXIF piece by piece, in hours.
            height, width, _ = tf.io.extract_jpeg_shape(data).numpy()
            _check_pixels(path, width, height)
            scans = data.count(_JPEG_SCAN)
            if scans * int(width) * int(height) > _MOST_SCANS * MAX_PIXELS:
                raise UserError(_too_large(path, f"has {width} x {height} pixels in {scans} scans"))
            image = tf.io.decode_image(data, channels=3, expand_animations=False)
        else:
            with _opened(data) as found:
                _check_pixels(path, *found.size)
                _check_pixels(path, *_tile(found))
                image = _decoded(path, found, data)
    except (tf.errors.OpError, OSError) as error:
        raise UserError(
            f"the image file {path} is broken ({type(error).__name__}): expected an image of the "
            f"formats {', '.join(FORMATS)}; get it again or remove it"
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
    """List the entries of a folder in sorted order, without hidden ones and those of systems.

    Raises:
        UserError: The folder cannot be read.
    """
    try:
        paths = sorted(folder.iterdir())
        return [p for p in paths if not p.name.startswith(".") and p.name not in _OF_SYSTEMS]
    except OSError as error:
        raise UserError(
            f"cannot read the folder {folder} ({error.strerror}): expected a folder that can be "
            "listed; change its permissions, or name another folder"
        ) from error


def _check_pixels(path: Path, width: int, height: int) -> None:
    if int(width) * int(height) > MAX_PIXELS:
        raise UserError(_too_large(path, f"claims {width} x {height} pixels"))


def _too_large(path: Path, size: str) -> str:
    return (
        f"the image file {path} {size}: expected at most {MAX_PIXELS:,} pixels; scale it down or "
        "remove it"
    )


def _opened(data: bytes) -> Any:
    """The image of Pillow, of which the header is read, and no memory of its size allocated.

    Raises:
        OSError: The data are no image of a known format.
    """
    import PIL.Image

    try:
        return PIL.Image.open(io.BytesIO(data), formats=tuple(FORMATS))
    except Exception as error:  # A broken header can raise any error.
        raise OSError("no image") from error


def _decoded(path: Path, image: Any, data: bytes) -> Any:
    """The pixels uint8 [height, width, 3] of an image that is open in Pillow.

    Raises:
        OSError, tf.errors.OpError: It is broken.
        UserError: Its values have more than 8 bits.
    """
    import tensorflow as tf

    bits = _bits(image, data)
    if image.mode not in _MODES or bits > 8:
        shown = f"{bits} bits a channel" if bits > 8 else f"the mode {image.mode}"
        raise UserError(
            f"the image file {path} has values of {shown}: expected 8 bits a channel; scale them "
            "to 0 to 255 and save them as such, or pass arrays to nccl_tf.stream_from_arrays"
        )
    if image.format not in _BY_PILLOW:
        return tf.io.decode_image(data, channels=3, expand_animations=False)
    try:
        return tf.constant(np.asarray(image.convert("RGB")))
    except Exception as error:  # Pillow's decoders raise any error.
        raise OSError("no image") from error


def _first_frame(data: bytes) -> bytes:
    """A GIF without comments and the frames after its first; anything else as it is.

    TensorFlow would decode those frames, of any size, too, and Pillow has an object for each block
    of a comment.
    """
    if len(data) < _GIF_HEADER or not data.startswith((b"GIF87a", b"GIF89a")):
        return data
    place = _GIF_HEADER + _bytes_of_colours(data[_GIF_HEADER - 3])
    head, control = data[:place], b""
    try:
        while data[place] == _GIF_EXTENSION:
            end = _after_blocks(data, place + 2)
            if data[place + 1] == _GIF_CONTROL and end - place == _GIF_CONTROL_BYTES:
                control = control or data[place:end]
            place = end
        if data[place] == _GIF_FRAME:
            end = _after_blocks(data, place + 11 + _bytes_of_colours(data[place + 9]))
            return head + control + data[place:end] + b";"
    except IndexError:  # The file ends before.
        pass
    return head + control + (data[place:] if data[place : place + 1] == b"," else b"")


def _bytes_of_colours(flags: int) -> int:
    """The bytes of the table of colours that follows a header of a GIF with these flags."""
    return 3 << (flags & 7) + 1 if flags & 128 else 0


def _after_blocks(data: bytes, place: int) -> int:
    """The place after blocks of a GIF, each with its length before it, and one of no bytes last."""
    while data[place]:
        place += 1 + data[place]
    return place + 1


def _tile(image: Any) -> tuple[int, int]:
    """Width and height of the tiles of a TIFF, which are decoded whole; zeros of other images.

    Raises:
        OSError: They are no numbers.
    """
    tags = image.tag_v2 if image.format == "TIFF" else {}
    width, height = (tags.get(tag, 0) for tag in _TIFF_TILE)
    if not (isinstance(width, int) and isinstance(height, int) and min(width, height) >= 0):
        raise OSError("no image")
    return width, height


def _bits(image: Any, data: bytes) -> int:
    """The bits of a channel of a PNG or TIFF, where Pillow's mode hides 16; 8 of other formats."""
    if image.format == "PNG":
        return data[_PNG_BIT_DEPTH]
    if image.format == "TIFF":
        return max(image.tag_v2.get(_TIFF_BITS_PER_SAMPLE, (1,)))
    return 8


def checked_taken(
    title: str, root: Path, parts: Sequence[Path], taken: Collection[Path]
) -> str | None:
    """Check that a reader of a folder leaves no image out, and no file where images should be.

    Args:
        title: Of the data, for messages.
        root: The folder.
        parts: The folders whose folders are classes: `root`, or its training and its test part.
        taken: The files that are read.

    Returns:
        Sentences on the other files below the folder, and on links that lead out of it; None
        without any.

    Raises:
        UserError: In the parts there are images that are not taken, pipes, devices or broken links,
            or a folder with files of which none is taken.
    """
    taken = set(taken)
    classes = {_first_below(part, path) for part in parts for path in taken}
    images: list[Path] = []
    others: list[Path] = []
    links: list[Path] = []
    for path in files_below(root, links):
        if path in taken:
            continue
        first = next(filter(None, (_first_below(part, path) for part in parts)), None)
        is_lost = first is not None and (
            _is_image(path) or not path.is_file() or (first != path and first not in classes)
        )
        (images if is_lost else others).append(path)
    if images:
        raise UserError(
            f"{title} has {_counted(images)} that would be left out: {_shown(root, images)}; "
            f"expected images ({', '.join(SUFFIXES)}) in the folder of their class: convert or "
            "move them, or move them out of the folder"
        )
    said = sentences_on_links(title, root, links)
    if others:
        said.append(f"{title} has {_counted(others)} that are not read: {_shown(root, others)}")
    return "; ".join(said) or None


def sentences_on_links(title: str, root: Path, links: Sequence[Path]) -> list[str]:
    """A sentence on links that lead out of a folder; none without any.

    Args:
        title: Of the data.
        root: The folder.
        links: As `files_below` finds them.
    """
    if not links:
        return []
    shown = ", ".join(f"{p.relative_to(root)} to {_real(p)}" for p in links[:_MOST_SHOWN])
    more = ", ..." if len(links) > _MOST_SHOWN else ""
    return [
        f"{title} has {len(links):,} links that lead out of it, and are followed: {shown}{more}"
    ]


def _counted(files: Sequence[Path]) -> str:
    return f"{len(files):,} file{'s' * (len(files) != 1)}"


def _shown(root: Path, files: Sequence[Path]) -> str:
    """Files as messages show them: how many of each ending there are, and in which folder."""
    counts = Counter((_ending(path), path.parent.relative_to(root).as_posix()) for path in files)
    shown = [
        f"{n} {ending} in {folder}/" for (ending, folder), n in counts.most_common(_MOST_SHOWN)
    ]
    return ", ".join(shown) + (", ..." if len(counts) > _MOST_SHOWN else "")


def _ending(path: Path) -> str:
    if not path.is_file():
        return "pipe, device or broken link"
    return path.suffix.lower() or "file without an ending"


def _first_below(part: Path, path: Path) -> Path | None:
    """The entry of a folder that a path is, or lies in; None where it lies elsewhere."""
    if not path.is_relative_to(part):
        return None
    return part / path.relative_to(part).parts[0]


def _is_image(path: Path) -> bool:
    """Whether a file is an image by its name, of a format that is read or of another one."""
    kind = mimetypes.guess_type(path.name)[0] or ""
    return path.suffix.lower() in SUFFIXES or kind.startswith("image/")


def files_below(folder: Path, leading_out: list[Path] | None = None) -> Iterator[Path]:
    """The visible files below a folder, in the order of their paths; pipes and broken links too.

    Links are followed, and each folder is listed once, since a link may lead back to one. Folders
    may lie as deep in one another as paths can be long.

    Args:
        folder: The folder.
        leading_out: Takes the links that lead out of it.

    Raises:
        UserError: A folder cannot be listed, or a link leads to one around the folder.
    """
    root, waiting = _real(folder), [folder]
    seen: set[tuple[int, int]] = set()
    while waiting:
        path = waiting.pop()
        status = _status(path)
        if path != folder and path.is_symlink() and not (real := _real(path)).is_relative_to(root):
            if root.is_relative_to(real):
                raise UserError(
                    f"{one_line(str(path))} is a link to {real}, in which the folder itself lies: "
                    "remove it"
                )
            if leading_out is not None:
                leading_out.append(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            yield path
        elif (place := (status.st_dev, status.st_ino)) not in seen:
            seen.add(place)
            waiting.extend(reversed(list_visible(path)))


def _real(path: Path) -> Path:
    """A path without links, of one that leads to itself too, unlike `Path.resolve`."""
    return Path(os.path.realpath(path))


def _status(path: Path) -> os.stat_result | None:
    """The status of a path; None of a link to nothing or to itself.

    Raises:
        UserError: It cannot be looked at.
    """
    try:
        return path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            return None
        raise UserError(
            f"cannot look at {one_line(str(path))} ({error.strerror}): move it out of the folder, "
            "or shorten the path"
        ) from error
