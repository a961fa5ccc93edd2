"""Defaults and checks of a stream's settings, without data, NumPy or TensorFlow."""

from typing import NamedTuple

from nccl_tf.arguments.choices import ANGLES, HEADS
from nccl_tf.errors import UserError, checked_at_least, checked_name
from nccl_tf.streams.catalog import StreamRow


class StreamPlan(NamedTuple):
    """A stream's settings with every default filled in.

    Args:
        head: "single" or "multi".
        num_tasks: Number of tasks, including tuning tasks.
        tuning_tasks: Number of tasks held out for tuning, the first ones.
        run_tasks: Number of evaluated tasks that are run (`max_tasks` applied).
        classes_per_task: Number of classes in a task.
        examples_per_task: Training examples of a task; None takes all.
        angles: "ordered" or "any", of a rotated stream.
        classes: The classes of each task of a split stream; None for equal shares by the seed.
    """

    head: str
    num_tasks: int
    tuning_tasks: int
    run_tasks: int
    classes_per_task: int
    examples_per_task: int | None
    angles: str = "ordered"
    classes: tuple[tuple[int, ...], ...] | None = None


def plan_stream(
    row: StreamRow,
    head: str | None = None,
    num_tasks: int | None = None,
    tuning_tasks: int | None = None,
    max_tasks: int | None = None,
    examples_per_task: int | None = None,
    angles: str | None = None,
) -> StreamPlan:
    """Replace None by the row's default and check that the settings are consistent.

    `max_tasks` is an upper bound and may exceed the number of evaluated tasks. The number of
    examples is unknown before the data are read, so only `examples_per_task >= 1` is checked.

    Args:
        row: The stream in the catalog.
        head: "single" or "multi".
        num_tasks: Number of tasks, including tuning tasks.
        tuning_tasks: Number of tasks held out for tuning.
        max_tasks: Maximum number of evaluated tasks to run; None for all.
        examples_per_task: Training examples of a task.
        angles: "ordered" or "any"; of a rotated stream alone.

    Raises:
        UserError: Unknown head or angles, or angles of a stream without; multi head on a permuted
            stream; a number of tasks that does not divide the classes of a split stream; tuning
            tasks outside 0..num_tasks-1; a count below 1.
    """
    head = checked_name("head", row.default_head if head is None else head, HEADS)
    if head not in row.heads:
        raise UserError(
            f"head 'multi' does not fit {row.name}: every task of a {row.kind} stream has all "
            f"{row.num_classes} classes; use the single head"
        )
    num_tasks = row.num_tasks if num_tasks is None else num_tasks
    num_tasks = checked_at_least("num_tasks", num_tasks, 1)
    if row.kind == "split" and row.num_classes % num_tasks:
        divisors = [n for n in range(1, row.num_classes + 1) if row.num_classes % n == 0]
        raise UserError(
            f"num_tasks={num_tasks} does not divide the {row.num_classes} classes of the stream "
            f"{row.name!r}: choose one of {', '.join(map(str, divisors))}"
        )
    tuning_tasks = row.tuning_tasks if tuning_tasks is None else tuning_tasks
    tuning_tasks = checked_at_least("tuning_tasks", tuning_tasks, 0)
    if tuning_tasks >= num_tasks:
        raise UserError(
            f"tuning_tasks={tuning_tasks} leaves no task of num_tasks={num_tasks} to evaluate: "
            f"choose tuning_tasks below num_tasks"
        )
    evaluated = num_tasks - tuning_tasks
    if max_tasks is not None:
        max_tasks = checked_at_least("max_tasks", max_tasks, 1)
    if examples_per_task is None:
        examples_per_task = row.examples_per_task
    else:
        examples_per_task = checked_at_least("examples_per_task", examples_per_task, 1)
    if angles is not None and row.kind != "rotated":
        raise UserError(
            f"received angles={angles!r} for {row.name}, a {row.kind} stream: only the images of a "
            "rotated stream are turned; leave it out"
        )
    angles = checked_name("angles", angles or ANGLES[0], ANGLES)
    per_task = row.num_classes // num_tasks if row.kind == "split" else row.num_classes
    run_tasks = evaluated if max_tasks is None else min(max_tasks, evaluated)
    return StreamPlan(head, num_tasks, tuning_tasks, run_tasks, per_task, examples_per_task, angles)
