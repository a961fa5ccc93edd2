"""Permuted streams: every task has the same images, with a different permutation of the pixels."""

import functools

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples, ImageSet
from nccl_tf.streams.plan import StreamPlan
from nccl_tf.streams.task import Task


def permute_pixels(examples: Examples, permutation: np.ndarray) -> Examples:
    """Permute the pixels of every image: new pixel c is old pixel permutation[c].

    Args:
        examples: uint8 images [n, h, w, c].
        permutation: int64 [h*w*c].
    """
    flat = examples.inputs.reshape(len(examples.inputs), -1)
    moved = np.take(flat, permutation, axis=1).reshape(examples.inputs.shape)
    return Examples(moved, examples.labels)


def permuted_tasks(
    images: ImageSet, plan: StreamPlan, seed: int
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Make the evaluated and the tuning tasks.

    Every evaluated task, including the first, has a random permutation and a random subset of the
    training images, both of which depend on (seed, task) only. Permutations and subsets of the
    tuning tasks come from other generators, without the seed: they are the same for every seed and
    never evaluated on.

    Raises:
        UserError: `examples_per_task` exceeds the number of training images, or inputs have names.
    """
    if isinstance(images.train.inputs, dict):
        raise UserError(
            f"received inputs named {sorted(images.train.inputs)} for a permuted stream: expected "
            "one array, whose values can be permuted"
        )
    available = len(images.train.labels)
    count = available if plan.examples_per_task is None else plan.examples_per_task
    if count > available:
        raise UserError(
            f"examples_per_task={count} is more than the {available} training images: choose at "
            f"most {available}"
        )
    classes = tuple(range(plan.classes_per_task)) if images.has_classes else ()

    def task(task_id: int, seed: int, permutation_key: int, subset_key: int) -> Task:
        size = int(np.prod(images.train.inputs.shape[1:]))
        permutation = seeding.generator(seed, permutation_key, task_id).permutation(size)
        subset = seeding.generator(seed, subset_key, task_id).permutation(available)[:count]

        def train() -> Examples:
            return permute_pixels(images.train.take(subset), permutation)

        @functools.cache
        def test() -> Examples:
            # Cached, because the run evaluates on this task after every later task.
            return permute_pixels(images.test, permutation)

        return Task(task_id, classes, count, train, test)

    evaluated = tuple(
        task(i, seed, seeding.PERMUTATION, seeding.SUBSET) for i in range(plan.run_tasks)
    )
    tuning = tuple(
        task(i, 0, seeding.TUNING_PERMUTATION, seeding.TUNING_SUBSET)
        for i in range(plan.tuning_tasks)
    )
    return evaluated, tuning
