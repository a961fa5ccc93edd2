"""Tasks whose inputs are what a function makes of the inputs of other tasks."""

from collections.abc import Callable, Sequence
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples, check_finite, check_same_form, examples_from_arrays
from nccl_tf.streams.task import Task


def map_tasks(tasks: Sequence[Task], function: Callable[[Any], Any]) -> tuple[Task, ...]:
    """Tasks with other inputs; `Stream.map` is the public form.

    Args:
        tasks: The tasks.
        function: From the inputs of a part of a task to arrays of as many rows. It runs here, once
            over each part: what it makes may depend on what changes, such as a network's weights.
    """
    return tuple(_mapped(task, function) for task in tasks)


def check_tasks(tasks: Sequence[Task]) -> None:
    """Check that all training and test inputs have one form.

    Args:
        tasks: Of `map_tasks`.

    Raises:
        UserError: They do not.
    """
    first = tasks[0].train.form()
    for task in tasks:
        for examples in (task.train, task.test):
            check_same_form(
                f"mapped examples of task {task.task_id}", examples.form(), "the first ones", first
            )


def _mapped(task: Task, function: Callable[[Any], Any]) -> Task:
    train, test = (_examples(task, name, function) for name in ("train", "test"))
    validation = None
    if task.validation is not None:
        held_out = _examples(task, "validation", function)
        validation = lambda: held_out  # noqa: E731 (a part of a task is a function)
    return Task(task.task_id, task.classes, task.num_train, lambda: train, lambda: test, validation)


def _examples(task: Task, name: str, function: Callable[[Any], Any]) -> Examples:
    examples = getattr(task, name)
    made = function(examples.inputs)
    try:
        inputs = examples_from_arrays(made, examples.labels).inputs
        mapped = Examples(inputs, examples.labels)
        check_finite(mapped, "inputs")
    except UserError as error:
        raise UserError(
            f"in what the function makes of the {name} examples of task {task.task_id}: {error}"
        ) from error
    return mapped
