"""Permuted streams: every task has the same images, with a different permutation of the pixels."""

import functools

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples, ExampleSet
from nccl_tf.streams.plan import StreamPlan
from nccl_tf.streams.task import Task
from nccl_tf.streams.transformed import Transform, transformed_tasks


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
    data: ExampleSet, plan: StreamPlan, seed: int
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Make the evaluated and the tuning tasks.

    Every evaluated task, including the first, has a random permutation and a random subset of the
    training images, both of which depend on (seed, task) only. Permutations and subsets of the
    tuning tasks come from other generators, without the seed: they are the same for every seed and
    never evaluated on.

    Raises:
        UserError: `examples_per_task` exceeds the number of training images, inputs have names, or
            an example has one value alone.
    """
    if isinstance(data.train.inputs, dict):
        raise UserError(
            f"received inputs named {sorted(data.train.inputs)} for a permuted stream: expected "
            "one array, whose values can be permuted"
        )
    size = int(np.prod(data.train.inputs.shape[1:]))
    if size < 2:
        raise UserError(
            f"received inputs of shape {data.train.inputs.shape} for a permuted stream, so that "
            "all tasks would be the same: expected several values in each example; turn texts into "
            'tokens [n, length], or cut the stream with kind="split" or by `domains`'
        )

    def permutation(task_id: int, seed: int, is_tuning: bool) -> Transform:
        purpose = seeding.TUNING_PERMUTATION if is_tuning else seeding.PERMUTATION
        order = seeding.generator(seed, purpose, task_id).permutation(size)
        return functools.partial(permute_pixels, permutation=order)

    return transformed_tasks(data, plan, seed, permutation)
