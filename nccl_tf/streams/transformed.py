"""Tasks of the same examples, each with a transform of its own: permuted and rotated streams."""

import functools
from collections.abc import Callable

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples, ExampleSet
from nccl_tf.streams.plan import StreamPlan
from nccl_tf.streams.task import Task

Transform = Callable[[Examples], Examples]


def transformed_tasks(
    data: ExampleSet,
    plan: StreamPlan,
    seed: int,
    transform_of: Callable[[int, int, bool], Transform],
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Make the evaluated and the tuning tasks.

    Every task has a transform and a random subset of the training examples. Those of the tuning
    tasks come from other generators, without the seed: they are the same for every seed.

    Args:
        data: Training and test examples.
        plan: The sizes of the stream.
        seed: Seed of the stream.
        transform_of: (task_id, seed, whether it is a tuning task) -> the task's transform.

    Raises:
        UserError: `examples_per_task` exceeds the number of training examples.
    """
    available = len(data.train.labels)
    count = available if plan.examples_per_task is None else plan.examples_per_task
    if count > available:
        raise UserError(
            f"examples_per_task={count} is more than the {available} training images: choose at "
            f"most {available}"
        )
    classes = tuple(range(plan.classes_per_task)) if data.has_classes else ()

    def task(task_id: int, seed: int, is_tuning: bool) -> Task:
        transform = transform_of(task_id, seed, is_tuning)
        key = seeding.TUNING_SUBSET if is_tuning else seeding.SUBSET
        subset = seeding.generator(seed, key, task_id).permutation(available)[:count]

        def train() -> Examples:
            return transform(data.train.take(subset))

        @functools.cache
        def test() -> Examples:
            # Cached, because the run evaluates on this task after every later task.
            return transform(data.test)

        return Task(task_id, classes, count, train, test)

    return (
        tuple(task(i, seed, False) for i in range(plan.run_tasks)),
        tuple(task(i, 0, True) for i in range(plan.tuning_tasks)),
    )
