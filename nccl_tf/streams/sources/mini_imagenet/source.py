"""The images of a mini-ImageNet source, whatever its layout."""

import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError

SIDE = 84
CACHE_NAMES = tuple(f"mini-imagenet-cache-{part}.pkl" for part in ("train", "val", "test"))
LAYOUTS = (
    f"one pickle (*.pkl, *.pickle) of {{images, labels}}, the pickles {', '.join(CACHE_NAMES)}, a "
    "folder of images by class, with or without train/ and test/, or images/ with train.csv, "
    "val.csv and test.csv"
)


class Source(NamedTuple):
    """Key and class number of each training and test example; `read` takes a key.

    It returns an image uint8 [84, 84, 3], RGB.
    """

    train: list[tuple[Any, int]]
    test: list[tuple[Any, int]]
    read: Callable[[Any], np.ndarray]


def split_train_test(where: Path, members: dict, read: Callable[[Any], np.ndarray]) -> Source:
    """Number the classes in sorted order and split the keys of each: 5/6 train, 1/6 test.

    Raises:
        UserError: A class has fewer than two images.
    """
    source = Source([], [], read)
    for number, name in enumerate(sorted(members)):
        keys = [(key, number) for key in members[name]]
        if len(keys) < 2:
            raise UserError(
                f"mini-ImageNet class {reprlib.repr(str(name))} in {where} has {len(keys)} images: "
                "expected at least 2, to split into training and test images; complete the class"
            )
        first_test = len(keys) - max(1, len(keys) // 6)
        source.train.extend(keys[:first_test])
        source.test.extend(keys[first_test:])
    return source
