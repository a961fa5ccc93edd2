"""Examples that a run passes through its network, from its settings and the steps of its tasks."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nccl_tf.methods.registry import METHODS, Method
from nccl_tf.records.settings import EARLIER_STEPS, EARLIER_TASKS, Settings


@dataclass(frozen=True)
class Work:
    """What a run had to do, in numbers.

    Args:
        method: Its method.
        task_steps: Steps of each task.
        batch_size: Rows of a stream batch.
        memory_batch_size: Rows of a draw from the memory; 0 where none are drawn.
        capacity: Slots of the memory; 0 without one.
        task_examples: Training examples of a task that a sample may hold.
        numbers: The method's own, by name.
        convolves: Whether the network has convolutions.
    """

    method: Method
    task_steps: Sequence[int]
    batch_size: int
    memory_batch_size: int
    capacity: int
    task_examples: int
    numbers: Mapping[str, Any]
    convolves: bool = False

    @property
    def steps(self) -> int:
        """Steps of all tasks."""
        return sum(self.task_steps)

    @property
    def stream(self) -> int:
        """Rows of all stream batches, padding of the last one of a pass included."""
        return self.steps * self.batch_size

    @property
    def replays(self) -> int:
        """Steps in which the memory has something to read.

        A ring and reservoirs of past tasks give nothing in the first task, others nothing in the
        first step.
        """
        memory = self.method.memory or ""
        if not memory:
            return 0
        past = memory in ("ring", "exemplars") or memory.startswith("past")
        return self.steps - (self.task_steps[0] if past else 1)

    @property
    def memory(self) -> int:
        """Rows of one draw in each of those steps."""
        return self.replays * self.memory_batch_size

    def slots_of_a_task(self) -> int:
        """Slots of a ring for each task, which all have as many classes."""
        return self.capacity // len(self.task_steps)

    def stored_before(self, step: int) -> int:
        """Examples in a reservoir before a step, from 0."""
        return min(self.capacity, step * self.batch_size)

    def stored_after_tasks(self) -> list[int]:
        """Examples in a memory of all classes at the end of each task."""
        ends = itertools.accumulate(self.task_steps)
        return [self.stored_before(end) for end in ends]


Count = Callable[[Work], int]


def _bgd(work: Work) -> int:
    return work.stream * (1 + work.numbers["bgd_samples"])


def _gem(work: Work) -> int:
    past = sum(steps * task for task, steps in enumerate(work.task_steps))
    return work.stream + past * work.slots_of_a_task()


def _orthog_subspace(work: Work) -> int:
    return work.stream + work.replays * work.slots_of_a_task()


def _importances(work: Work) -> int:
    sample = min(work.numbers["importance_examples"], work.task_examples)
    return work.stream + len(work.task_steps) * sample


def _mir(work: Work) -> int:
    ahead = work.replays * work.batch_size
    candidates = 2 * work.replays * work.numbers["candidates"]
    return work.stream + ahead + candidates + work.memory


def _edits(work: Work) -> int:
    """A virtual step and two weights for the memory batch, in every step."""
    return work.steps * (work.batch_size + 2 * work.memory_batch_size)


def _gdumb(work: Work) -> int:
    passes = work.numbers["passes"] or (256 if work.convolves else 128)
    size = work.memory_batch_size
    pass_of = sum(-(-stored // size) * size for stored in work.stored_after_tasks())
    return work.stream + passes * pass_of


def _lpr(work: Work) -> int:
    numbers, count = work.numbers, work.capacity
    if not numbers["lpr_omega"]:
        return work.stream + work.memory
    asked = numbers["lpr_examples"] or count
    together = min(100, asked)
    due = range(numbers["lpr_every"], work.steps, numbers["lpr_every"])
    rows = [min(asked, work.stored_before(step)) for step in due]
    return work.stream + work.memory + sum(-(-row // together) * together for row in rows)


def _mc_sgd(work: Work) -> int:
    size, slots = work.memory_batch_size, work.slots_of_a_task()
    present = size if work.numbers["line_examples"] else slots
    total = work.stream
    # Points of the line but its start, which adds nothing, and a pass for batch normalisation.
    for task in range(1, len(work.task_steps)):
        steps = work.numbers["line_steps"] or max(-(-task * slots // size), 50)
        total += steps * max(work.numbers["line_points"], 2) * (size + present)
    return total


_COUNTS: dict[str, Count] = {
    "bgd": _bgd,
    "gem": _gem,
    "orthog_subspace": _orthog_subspace,
    "online_ewc": _importances,
    "mas": _importances,
    "derpp": lambda work: work.stream + 2 * work.memory,
    "lwf": lambda work: 2 * work.stream,
    "clser": lambda work: work.stream + 3 * work.memory,
    "mer": lambda work: work.stream + work.memory,
    "mir": _mir,
    "er_gmed": lambda work: work.stream + _edits(work) + work.memory,
    "mir_gmed": lambda work: _mir(work) + _edits(work),
    "gdumb": _gdumb,
    "lpr": _lpr,
    "mc_sgd": _mc_sgd,
}
"""Rows of the methods that pass more than a batch of the stream and one of the memory."""


def rows_passed(work: Work) -> int | None:
    """Rows of examples that pass forward through the network while it learns.

    A row that passes twice counts twice, whether a backward pass follows or not; a draw from the
    memory counts its whole size, repetitions included, where the memory has something to read.
    Evaluation, validation and diagnostics are left out.

    Returns:
        None where it depends on the data (GSS, iCaRL, CN-DPM), or a plugin's row has `passes`.
    """
    count = _COUNTS.get(work.method.name)
    if count is not None:
        return count(work)
    return None if work.method.passes else work.stream + work.memory


def examples_passed(
    settings: Settings, task_steps: Sequence[int], convolves: bool | None = None
) -> int | None:
    """`rows_passed` of a run; None too where its settings do not tell.

    Args:
        settings: Of the run.
        task_steps: Steps of each task.
        convolves: Whether the network has convolutions; None for what the settings tell.
    """
    method = METHODS.get(settings.method)
    if method is None:
        return None
    numbers = settings.hyperparameters
    earlier = EARLIER_TASKS in numbers or EARLIER_STEPS in numbers
    if method.memory and (earlier or None in (settings.memory_capacity, _draw(method, settings))):
        return None
    examples = settings.examples_per_task
    own = {row.name: numbers.get(row.name, row.default) for row in method.hyperparameters}
    return rows_passed(
        Work(
            method,
            task_steps,
            settings.batch_size,
            _draw(method, settings) or 0,
            _slots(settings),
            examples or task_steps[0] * settings.batch_size // settings.epochs,
            own,
            settings.hidden is None if convolves is None else convolves,
        )
    )


def _slots(settings: Settings) -> int:
    """Slots of the memory; of a ring those for the classes of the tasks that are trained."""
    slots = settings.memory_capacity or 0
    if settings.memory == "ring":
        return slots * settings.max_tasks // settings.evaluated_tasks
    return slots


def _draw(method: Method, settings: Settings) -> int | None:
    return settings.memory_batch_size if method.memory_batch else 0
