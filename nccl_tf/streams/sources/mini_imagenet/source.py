"""The list of images of a mini-ImageNet source, whatever its layout."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError

SIDE = 84
MAX_NAME = 1000
"""The longest name of a class, in characters."""
CACHE_NAMES = tuple(f"mini-imagenet-cache-{part}.pkl" for part in ("train", "val", "test"))
LAYOUTS = (
    "one pickle (*.pkl, *.pickle) of {images, labels}, the three pickles "
    f"{', '.join(CACHE_NAMES)}, or a folder of images by class, with or without train/ and test/"
)


class Source(NamedTuple):
    """The images of a source, by keys that only `read` interprets.

    Args:
        classes: Names of the classes, in the order of their numbers.
        train: Key and class number of each training example.
        test: Key and class number of each test example.
        read: Returns the image of a key, uint8 [84, 84, 3], RGB.
    """

    classes: tuple[str, ...]
    train: list[tuple[Any, int]]
    test: list[tuple[Any, int]]
    read: Callable[[Any], np.ndarray]


def split_train_test(where: Path, members: dict, read: Callable[[Any], np.ndarray]) -> Source:
    """Number the classes in sorted order and split each in file order: 5/6 train, 1/6 test.

    Args:
        where: The file or folder, for the message.
        members: Keys of the images of each class, in file order.
        read: Returns the image of a key.

    Raises:
        UserError: A class has fewer than two images or an unsupported name.
    """
    classes = sorted(members)
    names = check_class_names(where, classes)
    train, test = [], []
    for number, name in enumerate(classes):
        keys = list(members[name])
        if len(keys) < 2:
            raise UserError(
                f"mini-ImageNet class {str(name)!r} in {where} has {len(keys)} images: expected at "
                f"least 2, to split into training and test images; complete the class"
            )
        first_test = len(keys) - max(1, len(keys) // 6)
        train += [(key, number) for key in keys[:first_test]]
        test += [(key, number) for key in keys[first_test:]]
    return Source(names, train, test, read)


def check_class_names(where: Path, names: Iterable[object]) -> tuple[str, ...]:
    """Return the names as strings.

    Raises:
        UserError: A name would not survive a text file with one name per line, the form in which
            TFDS stores them.
    """
    strings = tuple(map(str, names))
    for name in strings:
        if not name.isprintable() or name != name.strip() or not 0 < len(name) <= MAX_NAME:
            raise UserError(
                f"a class in {where} is named {name[:40]!a}{'...' * (len(name) > 40)}: expected a "
                f"name of printable characters, {MAX_NAME} at most, that neither begins nor ends "
                "with a blank; rename it"
            )
    return strings
