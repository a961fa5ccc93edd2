"""A stream by its name."""

import os

from nccl_tf.errors import UserError
from nccl_tf.streams.catalog import get_dataset
from nccl_tf.streams.checks import check_stream
from nccl_tf.streams.images import load_images
from nccl_tf.streams.permuted import permuted_tasks
from nccl_tf.streams.seeding import CLASS_ORDER, generator
from nccl_tf.streams.split import split_tasks
from nccl_tf.streams.stream import Stream


def load_stream(
    name: str,
    *,
    head: str | None = None,
    seed: int = 0,
    num_tasks: int | None = None,
    tuning_tasks: int | None = None,
    max_tasks: int | None = None,
    examples_per_task: int | None = None,
    data_dir: str | os.PathLike | None = None,
    manual_dir: str | os.PathLike | None = None,
) -> Stream:
    """Load a stream of the catalog; what is None takes the catalog's value.

    Args:
        name: "permuted_mnist", "split_mnist", "split_cifar10", "split_cifar100",
            "split_mini_imagenet", "permuted_digits" or "split_digits".
        head: "single" or "multi".
        seed: Draws class order, permutations and subsets; >= 0.
        num_tasks: Number of tasks, tuning tasks included.
        tuning_tasks: How many of these are held out for tuning.
        max_tasks: Keep only the first evaluated tasks; the split into tasks stays.
        examples_per_task: Training examples of a task.
        data_dir: TFDS's data folder; the digits need none.
        manual_dir: Folder with the files of mini-ImageNet; other streams need none.

    Raises:
        UserError: Unknown name, settings that do not fit, data missing or broken.
    """
    row = get_dataset(name)
    plan = check_stream(row, head, num_tasks, tuning_tasks, max_tasks, examples_per_task)
    generator(seed, CLASS_ORDER)  # Refuses a bad seed before minutes go into reading data.
    images = load_images(row.source, data_dir, manual_dir)
    labels = max(images.train.labels.max(), images.test.labels.max()) + 1
    if labels > row.num_classes:
        raise UserError(
            f"the images of {name} have {labels} classes: expected {row.num_classes}; "
            f"give the data set it is named after"
        )
    if row.kind == "permuted":
        tasks, tuning = permuted_tasks(images, plan, seed)
    else:
        tasks, tuning = split_tasks(images, row.num_classes, plan, seed)
    return Stream(
        name=name,
        family=row.family,
        head=plan.head,
        tasks=tasks,
        tuning=tuning,
        num_tasks=plan.num_tasks,
        num_classes=row.num_classes,
        image_shape=images.train.images.shape[1:],
        pixels=images.pixels,
    )
