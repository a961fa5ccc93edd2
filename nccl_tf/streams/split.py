"""Split streams: the tasks have disjoint classes."""

import operator
from collections import Counter
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams import seeding
from nccl_tf.streams.arrays import Examples, ExampleSet
from nccl_tf.streams.plan import StreamPlan
from nccl_tf.streams.task import Task


def assign_classes(
    num_classes: int, plan: StreamPlan, seed: int
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Assign classes to the evaluated and the tuning tasks.

    The tuning tasks have the first labels in order, for every seed; the seed shuffles the other
    labels, so that no class is used both for tuning and for evaluation. Where the plan names the
    classes of each task, these are evaluated.

    Returns:
        The classes of each evaluated task, and of each tuning task.
    """
    if plan.classes is not None:
        return list(plan.classes), []
    size = plan.classes_per_task
    held_out = plan.tuning_tasks * size
    labels = np.arange(held_out, num_classes)
    order = seeding.generator(seed, seeding.CLASS_ORDER).permutation(labels).tolist()
    evaluated = [tuple(order[i : i + size]) for i in range(0, plan.run_tasks * size, size)]
    tuning = [tuple(range(i, i + size)) for i in range(0, held_out, size)]
    return evaluated, tuning


def named_classes(classes: Any, data: ExampleSet, count: int) -> tuple[tuple[int, ...], ...]:
    """The classes of each task as a user names them.

    Args:
        classes: A sequence of class numbers, or of names, for each task.
        data: The examples.
        count: Number of classes that there are.

    Raises:
        UserError: Targets are no classes, a task has none, or one is no class with training and
            test examples or is named twice.
    """
    check_classes(data)
    numbers = {name: label for label, name in enumerate(data.class_names or ())}
    try:
        tasks = tuple(
            tuple(numbers[c] if c in numbers else operator.index(c) for c in task)
            for task in classes
        )
    except TypeError as error:
        raise UserError(
            f"received classes={classes!r}: expected the class numbers of each task, such as "
            f"[[0, 1], [2, 3, 4]], or names among {list(numbers)}"
        ) from error
    if not tasks or not all(tasks):
        raise UserError(f"received classes={classes!r}: expected at least one class in each task")
    present = np.intersect1d(data.train.labels, data.test.labels)
    named = Counter(label for task in tasks for label in task)
    for label, times in named.items():
        shown = data.shown(label)
        if label not in present:
            raise UserError(
                f"received classes with {shown}, of which there are no training or no test "
                f"examples: expected numbers from 0 to {count - 1}, or names; leave it out"
            )
        if times > 1:
            raise UserError(
                f"received classes with {shown} in {times} places: expected each class in one task "
                "at most; tasks that share classes make a stream of pairs, stream_from_datasets"
            )
    return tasks


def check_classes(data: ExampleSet) -> None:
    """Check that targets are class numbers.

    Raises:
        UserError: They are not.
    """
    if not data.has_classes:
        labels = data.train.labels
        remedy = "number one-hot labels with labels.argmax(axis=1)"
        if labels.ndim == 1 and (labels == np.floor(labels)).all():
            remedy = 'make class numbers integers again, labels.astype("int32")'
        raise UserError(
            f"received targets {labels.dtype.name} {labels.shape} to split by class: expected an "
            f"integer from 0 up, or a name, for each example; {remedy}; numbers to predict are cut "
            'by `domains` or kind="permuted"'
        )


def check_complete(data: ExampleSet, num_classes: int) -> None:
    """Check that every class has training and test examples.

    Args:
        data: Examples of classes below `num_classes`.
        num_classes: Number of classes.

    Raises:
        UserError: A class has none.
    """
    for part, examples in (("training", data.train), ("test", data.test)):
        present = np.unique(examples.labels)
        if len(present) == num_classes:
            continue
        # Class numbers may be far above the number of classes.
        missing = int(np.argmax(np.append(present, -1) != np.arange(len(present) + 1)))
        remedy = "get the complete data set, or leave the class out of the other part"
        if data.class_names is None:
            remedy = (
                "get the complete data set, or, where labels begin at 1 or leave numbers out, "
                "renumber those of both together with np.unique(labels, return_inverse=True)[1]"
            )
        raise UserError(
            f"class {data.shown(missing)} has no {part} examples: expected examples of all "
            f"{num_classes} classes; {remedy}"
        )


def split_tasks(
    data: ExampleSet, plan: StreamPlan, seed: int
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Make the evaluated and the tuning tasks; labels stay global.

    Raises:
        UserError: The targets are no classes, a class has no images, or a task has fewer than
            `examples_per_task`.
    """
    check_classes(data)
    num_classes = plan.num_tasks * plan.classes_per_task
    if plan.classes is None:
        check_complete(data, num_classes)

    def task(task_id: int, classes: tuple[int, ...], seed: int, subset_key: int) -> Task:
        train = np.flatnonzero(np.isin(data.train.labels, classes))
        test = np.flatnonzero(np.isin(data.test.labels, classes))
        count = plan.examples_per_task
        if count is not None:
            if count > len(train):
                raise UserError(
                    f"examples_per_task={count} is more than the {len(train)} training images of "
                    f"the task with classes {', '.join(map(data.shown, classes))}: choose at "
                    f"most {len(train)}"
                )
            train = seeding.generator(seed, subset_key, task_id).permutation(train)[:count]

        def take_train() -> Examples:
            return data.train.take(train)

        def take_test() -> Examples:
            return data.test.take(test)

        return Task(task_id, classes, len(train), take_train, take_test)

    evaluated, tuning = assign_classes(num_classes, plan, seed)
    return (
        tuple(task(i, classes, seed, seeding.SUBSET) for i, classes in enumerate(evaluated)),
        tuple(task(i, classes, 0, seeding.TUNING_SUBSET) for i, classes in enumerate(tuning)),
    )
