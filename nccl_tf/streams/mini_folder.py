"""mini-ImageNet as a folder of images by class."""

from pathlib import Path

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.mini_source import LAYOUTS, SIDE, Source, cut_classes, visible

PARTS = ("train", "val", "test")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp")


def read_folder(folder: Path) -> Source:
    """The images of a folder with a folder per class, or with such folders in train/ and test/.

    Training and test parts with the same classes are taken as they are (a val/ part with them adds
    to the training images). Parts with classes of their own, the few-shot split, are put together
    and cut per class, as is a folder without parts.

    Raises:
        UserError: No class folders, a class without images, or parts that share some classes only.
    """
    parts = [_by_class(folder / part) for part in PARTS if (folder / part).is_dir()]
    if not parts:
        return cut_classes(folder, _by_class(folder), read_image)
    members = {}
    for part in parts:
        for name, files in part.items():
            members.setdefault(name, []).extend(files)
    if sum(map(len, parts)) == len(members):
        return cut_classes(folder, members, read_image)
    tested = parts[-1] if (folder / "test").is_dir() else {}
    trained = set().union(*parts[:-1])
    if odd := sorted(trained ^ set(tested)):
        raise UserError(
            f"the class {odd[0]!r} is in only one of the training and test parts of {folder}: "
            f"expected the same classes in both, or none in common; complete the class"
        )
    classes = tuple(sorted(members))
    number = {name: index for index, name in enumerate(classes)}
    train = [
        (file, number[name])
        for name in classes
        for part in parts[:-1]
        for file in part.get(name, ())
    ]
    test = [(file, number[name]) for name in classes for file in tested[name]]
    return Source(classes, train, test, read_image)


def _by_class(folder: Path) -> dict[str, list[Path]]:
    """The image files, sorted, by the name of their class folder."""
    members = {}
    for path in visible(folder):
        if path.is_dir():
            files = [file for file in visible(path) if file.suffix.lower() in SUFFIXES]
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
        UserError: The file cannot be read or is no image.
    """
    import tensorflow as tf

    try:
        data = tf.io.read_file(str(path))
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
