"""A stream by its name."""

import os

from nccl_tf.errors import UserError, check_name
from nccl_tf.streams.catalog import get_dataset
from nccl_tf.streams.checks import check_stream
from nccl_tf.streams.held_out import hold_out_images
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
    tasks: str = "evaluated",
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
    check_name("tasks", tasks, ("evaluated", "tuning"))
    plan = check_stream(row, head, num_tasks, tuning_tasks, max_tasks, examples_per_task)
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
    if row.kind == "permuted":
        evaluated, tuning = permuted_tasks(images, plan, seed)
    else:
        evaluated, tuning = split_tasks(images, row.num_classes, plan, seed)
    if tasks == "tuning" and tuning:
        evaluated, tuning = tuning[:max_tasks], ()
    return Stream(
        name=name,
        family=row.family,
        head=plan.head,
        tasks=evaluated,
        tuning=tuning,
        num_tasks=plan.num_tasks,
        num_classes=row.num_classes,
        image_shape=images.train.images.shape[1:],
        pixels=images.pixels,
    )
