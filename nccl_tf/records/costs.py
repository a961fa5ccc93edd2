"""Examples that a run passes through its network, from its settings and the steps of its tasks."""

from collections.abc import Sequence

from nccl_tf.methods.registry import METHODS
from nccl_tf.methods.row import Method, Work
from nccl_tf.records.settings import EARLIER_STEPS, EARLIER_TASKS, Settings


def rows_passed(method: Method, work: Work) -> int | None:
    """Rows of examples that pass forward through the network while it learns.

    A row that passes twice counts twice, whether a backward pass follows or not; a draw from the
    memory counts its whole size, repetitions included, where the memory has something to read.
    Evaluation, validation and diagnostics are left out.

    Args:
        method: The run's.
        work: Of the run.

    Returns:
        None where it depends on the data, such as how often a memory is refilled.
    """
    if method.rows_passed is not None:
        return method.rows_passed(work)
    return None if method.passes else work.stream + work.memory


def examples_passed(
    settings: Settings, task_steps: Sequence[int], task_examples: Sequence[int], convolves: bool
) -> int | None:
    """`rows_passed` of a run; None too where its settings do not tell.

    Args:
        settings: Of the run.
        task_steps: Steps of each task.
        task_examples: Training examples of each task.
        convolves: Whether the network has convolutions.
    """
    method = METHODS.get(settings.method)
    if method is None:
        return None
    numbers = settings.hyperparameters
    earlier = EARLIER_TASKS in numbers or EARLIER_STEPS in numbers
    if settings.memory and (earlier or None in (settings.memory_capacity, _draw(method, settings))):
        return None
    own = {row.name: numbers.get(row.name, row.default) for row in method.hyperparameters}
    passed = rows_passed(
        method,
        Work(
            task_steps,
            settings.batch_size,
            _draw(method, settings) or 0,
            settings.memory,
            _slots(settings),
            task_examples,
            own,
            convolves,
        ),
    )
    if passed is None or settings.alignment is None:
        return passed
    return passed + sum(task_examples)  # Its pass at the end of each task.


def _slots(settings: Settings) -> int:
    """Slots of the memory; of a ring those for the classes of the tasks that are trained."""
    slots = settings.memory_capacity or 0
    if settings.memory == "ring":
        return slots * settings.max_tasks // settings.evaluated_tasks
    return slots


def _draw(method: Method, settings: Settings) -> int | None:
    return settings.memory_batch_size if method.memory_batch else 0
