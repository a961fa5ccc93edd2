"""Loading a stream by name, or from a user's arrays."""

import os
from dataclasses import replace

import numpy as np

from nccl_tf.choices import HEADS, STREAM_KINDS, TASKS
from nccl_tf.errors import UserError, check_name
from nccl_tf.streams.arrays import ImageSet, PixelScaling, images_from_arrays
from nccl_tf.streams.catalog import DatasetRow, get_dataset
from nccl_tf.streams.permuted import permuted_tasks
from nccl_tf.streams.plan import StreamPlan, plan_stream
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
    """Load a stream of the catalog; arguments that are None take the catalog's value.

    Args:
        name: "permuted_mnist", "split_mnist", "split_cifar10", "split_cifar100",
            "split_mini_imagenet", "permuted_digits", "split_digits" or one that was registered.
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
    check_name("tasks", tasks, TASKS)
    plan = plan_stream(row, head, num_tasks, tuning_tasks, max_tasks, examples_per_task)
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
    plan = plan_stream(row, head, num_tasks, tuning_tasks, None, examples_per_task)
    return cut(images, row, plan, seed)


def cut(images: ImageSet, row: DatasetRow, plan: StreamPlan, seed: int) -> Stream:
    """Split images into the tasks of a plan; the seed draws classes, permutations and subsets.

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
