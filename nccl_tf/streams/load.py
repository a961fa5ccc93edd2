"""A stream by its name, or from images that a user brings."""

import os
from dataclasses import replace

import numpy as np

from nccl_tf.choices import HEADS, STREAM_KINDS, TASKS
from nccl_tf.errors import UserError, check_name
from nccl_tf.streams.arrays import ImageSet, PixelScaling, images_from_arrays
from nccl_tf.streams.catalog import DatasetRow, get_dataset
from nccl_tf.streams.permuted import permuted_tasks
from nccl_tf.streams.plan import StreamPlan, check_stream
from nccl_tf.streams.seeding import CLASS_ORDER, HELD_OUT_IMAGES, generator
from nccl_tf.streams.sources.images import load_images
from nccl_tf.streams.split import split_tasks
from nccl_tf.streams.stream import Stream

KINDS = {"permuted": permuted_tasks, "split": split_tasks}
"""How examples are cut into tasks, by the kind of the stream."""


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
    """Load a stream of the catalog; what is None takes the catalog's value.

    Args:
        name: "permuted_mnist", "split_mnist", "split_cifar10", "split_cifar100",
            "split_mini_imagenet", "permuted_digits", "split_digits" or one that was registered.
        head: "single" or "multi".
        seed: Draws class order, permutations and subsets; >= 0.
        num_tasks: Number of tasks, tuning tasks included.
        tuning_tasks: How many of these are held out for tuning.
        tasks: "evaluated", or "tuning" for a stream to choose hyperparameters on: the tuning tasks
            or, where there are none, the evaluated ones with a fixed tenth of the training images
            of each class in place of the test images, which are then in no task.
        max_tasks: Keep only the first tasks; the split into tasks stays.
        examples_per_task: Training examples of a task.
        data_dir: TFDS's data folder; the digits need none.
        manual_dir: Folder with the files of mini-ImageNet; other streams need none.

    Raises:
        UserError: Unknown name, settings that do not fit, data missing or broken.
    """
    row = get_dataset(name)
    check_name("tasks", tasks, TASKS)
    plan = check_stream(row, head, num_tasks, tuning_tasks, max_tasks, examples_per_task)
    generator(seed, CLASS_ORDER)  # Refuses a bad seed before minutes go into reading data.
    if row.make is not None:
        stream = row.make(plan=plan, seed=seed, data_dir=data_dir, manual_dir=manual_dir)
        return _tasks_to_run(_checked(stream, row, plan, tasks), tasks, max_tasks)
    images = load_images(row.source, data_dir, manual_dir)
    labels = max(images.train.labels.max(), images.test.labels.max()) + 1
    if labels > row.num_classes:
        raise UserError(
            f"the images of {name} have {labels} classes: expected {row.num_classes}; "
            f"give the data set it is named after"
        )
    if tasks == "tuning" and not plan.tuning_tasks:
        images = hold_out_images(images)
    return _tasks_to_run(cut(images, row, plan, seed), tasks, max_tasks)


def _tasks_to_run(stream: Stream, tasks: str, max_tasks: int | None) -> Stream:
    if tasks == "tuning" and stream.tuning:
        return replace(stream, tasks=stream.tuning[:max_tasks], tuning=())
    return stream


def _checked(stream: Stream, row: DatasetRow, plan: StreamPlan, tasks: str) -> Stream:
    """A stream that its row made, if it is as planned."""
    made = (len(stream.tasks), len(stream.tuning), stream.num_classes, stream.head)
    planned = (plan.run_tasks, plan.tuning_tasks, row.num_classes, plan.head)
    if made != planned:
        names = "tasks, tuning tasks, classes and head"
        raise UserError(
            f"{row.name} made a stream of {made} {names}: expected {planned}, as its row and the "
            "settings say"
        )
    if tasks == "tuning" and not stream.tuning:
        raise UserError(
            f"{row.name} makes its stream itself and holds no tasks out for tuning: give it "
            "tuning tasks with --tuning_tasks"
        )
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
    """A stream of tasks from images of one's own.

    Args:
        train: Training images uint8 [n, height, width, channels] and labels, whole numbers [n] from
            0 up; every class occurs in both parts.
        test: Test images and labels, likewise.
        num_tasks: Number of tasks, tuning tasks included; of a split stream, a divisor of the
            number of classes.
        kind: "split" (every task has classes of its own) or "permuted" (every task has all classes,
            its pixels permuted).
        head: "single" or "multi" (split streams only).
        seed: Draws class order, permutations and subsets; >= 0.
        tuning_tasks: How many of the tasks are held out for tuning.
        examples_per_task: Training examples of a task; None takes all.
        pixels: How the package's networks scale raw pixels; None for 1/255.
        name: What the stream is called.

    Raises:
        UserError: The arrays are not of these shapes and types, or the settings do not fit.
    """
    check_name("kind", kind, STREAM_KINDS)
    images = images_from_arrays(train, test, pixels)
    classes = int(max(images.train.labels.max(), images.test.labels.max())) + 1
    row = DatasetRow(
        name=name,
        kind=kind,
        num_tasks=num_tasks,
        num_classes=classes,
        heads=HEADS if kind == "split" else ("single",),
        default_head=head,
    )
    plan = check_stream(row, head, num_tasks, tuning_tasks, None, examples_per_task)
    return cut(images, row, plan, seed)


def cut(images: ImageSet, row: DatasetRow, plan: StreamPlan, seed: int) -> Stream:
    """Images cut into the tasks of a plan; the seed draws classes, permutations and subsets.

    Raises:
        UserError: The images have too few examples or classes for the plan.
    """
    tasks, tuning = KINDS[row.kind](images, plan, seed)
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


def hold_out_images(images: ImageSet) -> ImageSet:
    """A tenth of each class's training images as test images, the rest as training images.

    The tenth, rounded up, is drawn by a fixed generator and is the same for every seed. The test
    images are left out.
    """
    labels = images.train.labels
    held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = generator(0, HELD_OUT_IMAGES, int(label)).permutation(members)
        held_out[order[: -(-len(members) // 10)]] = True
    return ImageSet(images.train.take(~held_out), images.train.take(held_out), images.pixels)
