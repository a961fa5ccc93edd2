"""Loading a stream by name, or from a user's arrays."""

import os
from dataclasses import replace

import numpy as np

from nccl_tf.errors import UserError, check_name
from nccl_tf.streams.arrays import (
    Examples,
    ImageSet,
    PixelScaling,
)
from nccl_tf.streams.catalog import DatasetRow, get_dataset
from nccl_tf.streams.permuted import permuted_tasks
from nccl_tf.streams.plan import StreamPlan, plan_stream
from nccl_tf.streams.seeding import CLASS_ORDER, HELD_OUT_IMAGES, generator
from nccl_tf.streams.sources.images import load_images
from nccl_tf.streams.split import split_tasks
from nccl_tf.streams.stream import Stream


def load_stream(
    name: str,
    *,
    head: str | None = None,
    seed: int = 0,
    num_tasks: int | None = None,
    tuning_tasks: int | None = None,
    tasks: str = "evaluated",
    max_tasks: int | None = None,
    examples_per_task: int | None = None,
    data_dir: str | os.PathLike | None = None,
    manual_dir: str | os.PathLike | None = None,
) -> Stream:
    """Load a stream of the catalog; arguments that are None take the catalog's value.

    Args:
        name: "permuted_mnist", "split_mnist", "split_cifar10", "split_cifar100",
            "split_mini_imagenet", "permuted_digits" or "split_digits".
        head: "single" or "multi".
        seed: Seed of class order, permutations and subsets; >= 0.
        num_tasks: Number of tasks, including tuning tasks.
        tuning_tasks: Number of these tasks that are held out for tuning.
        tasks: "evaluated", or "tuning" for a stream to choose hyperparameters on: the tuning tasks
            or, for a stream without tuning tasks, the evaluated tasks with a fixed tenth of the
            training images of each class in place of the test images, which are then not used.
        max_tasks: Keep only the first tasks; the split into tasks stays the same.
        examples_per_task: Training examples of a task.
        data_dir: TFDS's data folder; the digits need none.
        manual_dir: Folder with the files of mini-ImageNet; other streams need none.

    Raises:
        UserError: Unknown name, inconsistent settings, or missing or broken data.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", head="multi", seed=0)
    for task in stream:
        batches = task.train_batches(batch_size=10, seed=0)
        images, labels = task.test
    ```
    """
    row = get_dataset(name)
    check_name("tasks", tasks, ("evaluated", "tuning"))
    plan = plan_stream(row, head, num_tasks, tuning_tasks, max_tasks, examples_per_task)
    generator(seed, CLASS_ORDER)  # Refuses a bad seed before minutes go into reading data.
    images = load_images(row.source, data_dir, manual_dir)
    labels = max(images.train.labels.max(), images.test.labels.max()) + 1
    if labels > row.num_classes:
        raise UserError(
            f"the images of {name} have {labels} classes: expected {row.num_classes}; "
            f"give the data set it is named after"
        )
    if tasks == "tuning" and not plan.tuning_tasks:
        images = hold_out_images(images)
    stream = cut(images, row, plan, seed)
    if tasks == "tuning" and stream.tuning:
        return replace(stream, tasks=stream.tuning[:max_tasks], tuning=())
    return stream


def stream_from_arrays(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    num_tasks: int,
    kind: str = "split",
    head: str = "single",
    seed: int = 0,
    tuning_tasks: int = 0,
    examples_per_task: int | None = None,
    pixels: PixelScaling | None = None,
    name: str = "own",
) -> Stream:
    """Make a stream of tasks from a user's images.

    Args:
        train: Training images uint8 [n, height, width, channels] and labels, integers [n] from 0;
            every class occurs in both training and test data.
        test: Test images and labels, in the same form.
        num_tasks: Number of tasks, including tuning tasks; for a split stream, a divisor of the
            number of classes.
        kind: "split" (the tasks have disjoint classes) or "permuted" (every task has all classes,
            with permuted pixels).
        head: "single" or "multi" (split streams only).
        seed: Seed of class order, permutations and subsets; >= 0.
        tuning_tasks: Number of these tasks that are held out for tuning.
        examples_per_task: Training examples of a task; None takes all.
        pixels: Pixel scaling of the package's networks; None for 1/255.
        name: Name of the stream.

    Raises:
        UserError: The arrays have other shapes or dtypes, or the settings are inconsistent.

    Example:

    ```python
    images = np.random.default_rng(0).integers(0, 256, (200, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(200) % 10
    stream = nccl_tf.stream_from_arrays(
        (images[:150], labels[:150]), (images[150:], labels[150:]), num_tasks=5
    )
    ```
    """
    check_name("kind", kind, ("split", "permuted"))
    first, second = _examples(*train), _examples(*test)
    if first.inputs.shape[1:] != second.inputs.shape[1:]:
        raise UserError(
            f"received training images {first.inputs.shape[1:]} and test images "
            f"{second.inputs.shape[1:]}: expected images of one shape"
        )
    classes = int(max(first.labels.max(), second.labels.max())) + 1
    heads = ("single", "multi") if kind == "split" else ("single",)
    row = DatasetRow(name, "own", kind, "own", head, heads, num_tasks, num_classes=classes)
    plan = plan_stream(row, head, num_tasks, tuning_tasks, None, examples_per_task)
    images = ImageSet(first, second, PixelScaling() if pixels is None else pixels)
    return cut(images, row, plan, seed)


def cut(images: ImageSet, row: DatasetRow, plan: StreamPlan, seed: int) -> Stream:
    """Split images into the tasks of a plan; the seed draws classes, permutations and subsets.

    Raises:
        UserError: The images have too few examples or classes for the plan.
    """
    if row.kind == "permuted":
        tasks, tuning = permuted_tasks(images, plan, seed)
    else:
        tasks, tuning = split_tasks(images, row.num_classes, plan, seed)
    return Stream(
        name=row.name,
        family=row.family,
        head=plan.head,
        tasks=tasks,
        tuning=tuning,
        num_tasks=plan.num_tasks,
        num_classes=row.num_classes,
        example_shape=images.train.inputs.shape[1:],
        pixels=images.pixels,
    )


def _examples(images: np.ndarray, labels: np.ndarray) -> Examples:
    images, labels = np.asarray(images), np.asarray(labels)
    if images.dtype != np.uint8 or images.ndim != 4 or not len(images):
        raise UserError(
            f"received images {images.dtype.name} {images.shape}: expected uint8 "
            "[n, height, width, channels] with n >= 1; raw pixels need no scaling"
        )
    whole = np.issubdtype(labels.dtype, np.integer)
    if labels.shape != images.shape[:1] or not whole or labels.min() < 0:
        raise UserError(
            f"received labels {labels.dtype.name} {labels.shape} for {len(images)} images: "
            "expected an integer from 0 up for each image"
        )
    return Examples(images, labels.astype(np.int32))


def hold_out_images(images: ImageSet) -> ImageSet:
    """Replace the test images by a tenth of the training images of each class.

    The tenth is rounded up and is the same for every seed. The other training images stay training
    images; the original test images are dropped.
    """
    labels = images.train.labels
    held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = generator(0, HELD_OUT_IMAGES, int(label)).permutation(members)
        held_out[order[: -(-len(members) // 10)]] = True
    return ImageSet(images.train.take(~held_out), images.train.take(held_out), images.pixels)
