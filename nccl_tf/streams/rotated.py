"""Rotated streams: every task has the same images, turned by another angle."""

import functools

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples, ImageSet
from nccl_tf.streams.plan import StreamPlan
from nccl_tf.streams.task import Task

DEGREES = 180.0


def rotate(examples: Examples, angle: float) -> Examples:
    """Turn images uint8 [n, h, w, c] by an angle in degrees; what comes into view is 0."""
    import scipy.ndimage

    turned = np.empty_like(examples.inputs)
    for number, image in enumerate(examples.inputs):
        turned[number] = scipy.ndimage.rotate(image, angle, reshape=False, order=1)
    return Examples(turned, examples.labels)


def task_angle(task_id: int, num_tasks: int, seed: int, purpose: int) -> float:
    """The angle of a task in degrees, uniform in its own part of the half turn.

    Rotations of Lopez-Paz and Ranzato (2017): the parts are equal and follow one another.
    """
    part = DEGREES / num_tasks
    return part * (task_id + seeding.generator(seed, purpose, task_id).uniform())


def rotated_tasks(
    images: ImageSet, plan: StreamPlan, seed: int
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Make the evaluated and the tuning tasks.

    Every task has an angle and a random subset of the training images, which depend on (seed, task)
    alone; those of the tuning tasks are the same for every seed.

    Raises:
        UserError: The inputs are no images, or `examples_per_task` exceeds their number.
    """
    if isinstance(images.train.inputs, dict) or images.train.inputs.ndim != 4:
        raise UserError(
            "received inputs that are no images for a rotated stream: expected an array "
            "[n, height, width, channels]"
        )
    available = len(images.train.labels)
    count = available if plan.examples_per_task is None else plan.examples_per_task
    if count > available:
        raise UserError(
            f"examples_per_task={count} is more than the {available} training images: choose at "
            f"most {available}"
        )
    classes = tuple(range(plan.classes_per_task)) if images.has_classes else ()

    def task(task_id: int, tasks: int, seed: int, angle_key: int, subset_key: int) -> Task:
        angle = task_angle(task_id, tasks, seed, angle_key)
        subset = seeding.generator(seed, subset_key, task_id).permutation(available)[:count]

        def train() -> Examples:
            return rotate(images.train.take(subset), angle)

        @functools.cache
        def test() -> Examples:
            # Cached, because the run evaluates on this task after every later task.
            return rotate(images.test, angle)

        return Task(task_id, classes, count, train, test)

    evaluated, held_out = plan.num_tasks - plan.tuning_tasks, plan.tuning_tasks
    return (
        tuple(
            task(i, evaluated, seed, seeding.ANGLE, seeding.SUBSET) for i in range(plan.run_tasks)
        ),
        tuple(
            task(i, held_out, 0, seeding.TUNING_ANGLE, seeding.TUNING_SUBSET)
            for i in range(held_out)
        ),
    )
