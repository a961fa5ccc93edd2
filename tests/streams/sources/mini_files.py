"""Files of mini-ImageNet in the layouts that users have, written by the tests."""

import pickle

import numpy as np
import tensorflow as tf

from nccl_tf.streams.sources.mini_imagenet.source import CACHE_NAMES

CLASSES = ("n03", "n01", "n02")


def image(value):
    """A plain image, so that its pixels name it."""
    return np.full((84, 84, 3), value, np.uint8)


def write_image(path, value, side=84):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tf.io.encode_png(np.full((side, side, 3), value, np.uint8)).numpy())


def write_pickle(path, content):
    path.write_bytes(pickle.dumps(content, 2))


def single(folder):
    labels = np.tile([7, 3, 5], 6)
    images = np.stack([image(10 * label + i // 3) for i, label in enumerate(labels)])
    write_pickle(folder / "mini.pkl", {"images": images, "labels": labels})
    return {0: 30, 1: 50, 2: 70}


def caches(folder):
    for number, (name, label) in enumerate(zip(CACHE_NAMES, CLASSES, strict=True)):
        images = np.stack([image(40 * number + i) for i in range(6)])
        write_pickle(folder / name, {"image_data": images, "class_dict": {label: list(range(6))}})
    return {0: 40, 1: 80, 2: 0}


def by_class(folder):
    for number, label in enumerate(CLASSES):
        for i in range(6):
            write_image(folder / label / f"{i}.png", 40 * number + i)
    return {0: 40, 1: 80, 2: 0}


def few_shot(folder):
    for number, (label, part) in enumerate(zip(CLASSES, ("train", "val", "test"), strict=True)):
        for i in range(6):
            write_image(folder / part / label / f"{i}.png", 40 * number + i)
    return {0: 40, 1: 80, 2: 0}


def listed(folder):
    """As Ravi and Larochelle's split comes: images/, and a CSV file for each part."""
    for number, (label, part) in enumerate(zip(CLASSES, ("train", "val", "test"), strict=True)):
        names = [f"{label}{i:08d}.png" for i in range(6)]
        for i, name in enumerate(names):
            write_image(folder / "images" / name, 40 * number + i)
        rows = ["filename,label", *(f"{name},{label}" for name in names)]
        (folder / f"{part}.csv").write_text("\n".join(rows))
    return {0: 40, 1: 80, 2: 0}
