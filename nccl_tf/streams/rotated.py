"""Rotated streams: every task has the same images, turned by another angle."""

import functools

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples, ImageSet
from nccl_tf.streams.plan import StreamPlan
from nccl_tf.streams.task import Task
from nccl_tf.streams.transformed import Transform, transformed_tasks

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
    evaluated = plan.num_tasks - plan.tuning_tasks

    def rotation(task_id: int, seed: int, is_tuning: bool) -> Transform:
        count = plan.tuning_tasks if is_tuning else evaluated
        purpose = seeding.TUNING_ANGLE if is_tuning else seeding.ANGLE
        return functools.partial(rotate, angle=task_angle(task_id, count, seed, purpose))

    return transformed_tasks(images, plan, seed, rotation)
