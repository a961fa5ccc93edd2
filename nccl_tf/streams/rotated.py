"""Rotated streams: every task has the same images, turned by another angle."""

import functools
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples, ExampleSet
from nccl_tf.streams.plan import StreamPlan
from nccl_tf.streams.task import Task
from nccl_tf.streams.transformed import Transform, transformed_tasks

DEGREES = 180.0
_IMAGES_AT_ONCE = 2_048


def rotate(examples: Examples, angle: float) -> Examples:
    """Rotate images [n, h, w, c] by an angle in degrees; new pixels are 0.

    Every pixel is interpolated between four, as `scipy.ndimage.rotate(..., order=1)` does it. The
    same four for every image: one product with a sparse matrix turns all of them.
    """
    images = examples.inputs
    height, width, channels = images.shape[1:]
    turn, turned = _turn(height, width, angle), np.empty_like(images)
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        part = images[start : start + _IMAGES_AT_ONCE].astype(np.float64)
        columns = part.transpose(1, 2, 0, 3).reshape(height * width, -1)
        pixels = (turn @ columns).reshape(height, width, len(part), channels)
        if np.issubdtype(images.dtype, np.integer):
            pixels = np.trunc(pixels + np.copysign(0.5, pixels))
        turned[start : start + _IMAGES_AT_ONCE] = pixels.transpose(2, 0, 1, 3)
    return Examples(turned, examples.labels)


def _turn(height: int, width: int, angle: float) -> Any:
    """The sparse matrix [h w, h w] from the pixels of an image to those of the turned one."""
    import scipy.sparse
    import scipy.special

    cos, sin = scipy.special.cosdg(angle), scipy.special.sindg(angle)
    sides = np.array([height, width])
    rows, columns = np.indices((height, width)).reshape(2, -1)
    middle_row, middle_column = (sides - 1) / 2
    # Where each pixel of the turned image comes from.
    above = cos * rows + sin * columns + (middle_row - cos * middle_row - sin * middle_column)
    left = -sin * rows + cos * columns + (middle_column + sin * middle_row - cos * middle_column)
    seen = (above >= 0) & (above <= height - 1) & (left >= 0) & (left <= width - 1)
    target, above, left = np.flatnonzero(seen), above[seen], left[seen]
    row = np.minimum(above.astype(int), max(height - 2, 0))
    column = np.minimum(left.astype(int), max(width - 2, 0))
    down, right = above - row, left - column
    source = row * width + column
    parts = (
        ((1 - down) * (1 - right), source),
        ((1 - down) * right, source + (width > 1)),
        (down * (1 - right), source + width * (height > 1)),
        (down * right, source + width * (height > 1) + (width > 1)),
    )
    weights = np.concatenate([weight for weight, _ in parts])
    sources = np.concatenate([number for _, number in parts])
    size = height * width
    return scipy.sparse.csr_array((weights, (np.tile(target, 4), sources)), shape=(size, size))


def task_angle(task_id: int, num_tasks: int, seed: int, purpose: int, angles: str) -> float:
    """The angle of a task in degrees.

    Args:
        task_id: Number of the task.
        num_tasks: How many tasks share the half turn.
        seed: Seed of the stream.
        purpose: Of the draw, for `seeding.generator`.
        angles: "ordered": uniform in the task's own part of the half turn; the parts are equal and
            follow one another (Lopez-Paz and Ranzato, 2017). "any": uniform in the half turn
            (Buzzega et al., 2020).
    """
    drawn = seeding.generator(seed, purpose, task_id).uniform()
    return DEGREES * drawn if angles == "any" else DEGREES / num_tasks * (task_id + drawn)


def rotated_tasks(
    data: ExampleSet, plan: StreamPlan, seed: int
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Make the evaluated and the tuning tasks.

    Every task has an angle and a random subset of the training images, which depend on (seed, task)
    alone; those of the tuning tasks are the same for every seed.

    Raises:
        UserError: The inputs are no images, or `examples_per_task` exceeds their number.
    """
    if isinstance(data.train.inputs, dict) or data.train.inputs.ndim != 4:
        raise UserError(
            "received inputs that are no images for a rotated stream: expected an array "
            "[n, height, width, channels]"
        )
    evaluated = plan.num_tasks - plan.tuning_tasks

    def rotation(task_id: int, seed: int, is_tuning: bool) -> Transform:
        count = plan.tuning_tasks if is_tuning else evaluated
        purpose = seeding.TUNING_ANGLE if is_tuning else seeding.ANGLE
        return functools.partial(
            rotate, angle=task_angle(task_id, count, seed, purpose, plan.angles)
        )

    return transformed_tasks(data, plan, seed, rotation)
