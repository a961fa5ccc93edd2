"""Examples that a run passes through its network, from its settings and the steps of its tasks."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nccl_tf.methods.registry import METHODS, Method
from nccl_tf.records.settings import EARLIER_STEPS, EARLIER_TASKS, Settings
from nccl_tf.streams.catalog import DATASETS


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
    settings: Settings,
    steps: int,
    task_steps: Sequence[int] | None,
    convolves: bool | None = None,
) -> int | None:
    """`rows_passed` of a run; None too where its settings do not tell.

    Args:
        settings: Of the run.
        steps: Of all tasks.
        task_steps: Of each of them; None takes them as equal.
        convolves: Whether the network has convolutions; None for what the settings tell.
    """
    method = METHODS.get(settings.method)
    if method is None:
        return None
    numbers = settings.hyperparameters
    earlier = EARLIER_TASKS in numbers or EARLIER_STEPS in numbers
    if method.memory and (earlier or None in (settings.memory_capacity, _draw(method, settings))):
        return None
    tasks = 1 if method.joint else settings.max_tasks
    if task_steps is None and steps % tasks:
        return None
    each = task_steps or [steps // tasks] * tasks
    examples = settings.examples_per_task
    own = {row.name: numbers.get(row.name, row.default) for row in method.hyperparameters}
    return rows_passed(
        Work(
            method,
            each,
            settings.batch_size,
            _draw(method, settings) or 0,
            _slots(settings),
            examples or each[0] * settings.batch_size // settings.epochs,
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


_PIXELS = {"digits": 64, "mnist": 784, "cifar": 3072, "mini_imagenet": 21168}
"""Numbers of an image, a byte each in a stream, by its source or family."""
STATISTICS = {
    "mlp": 0, "resnet18_reduced": 3000, "resnet18": 9600, "resnet18_one_conv": 2440,
}  # fmt: skip
"""Numbers of a network that no step of an optimizer moves: averages of batch normalisation."""
_FLOAT, _INTEGER = 4, 8


@dataclass(frozen=True)
class Kept:
    """What a method may keep, in numbers.

    Args:
        settings: Of the run.
        weights: Trainable numbers of the network.
        pixels: Bytes of an image of the stream.
        classes: Outputs of the network.
        cells: Pairs of task and class of the stream.
        numbers: The method's own, by name.
    """

    settings: Settings
    weights: int
    pixels: int
    classes: int
    cells: int
    numbers: Mapping[str, Any]

    def copies(self, count: int) -> int:
        """Bytes of copies of the trainable weights."""
        return count * _FLOAT * self.weights

    def networks(self, count: int) -> int:
        """Bytes of copies of the whole network."""
        return count * _FLOAT * (self.weights + STATISTICS[self.settings.network or ""])

    def reservoir(self, slots: int, row: int) -> int:
        """Bytes of a reservoir, its spare row and its two counters."""
        return (slots + 1) * (row + 2 * _INTEGER) + 2 * _INTEGER

    def memory(self) -> int:
        """Bytes of the memory; 0 without one."""
        kind, slots = self.settings.memory or "", _slots(self.settings)
        if not kind:
            return 0
        logits = self.settings.method in ("der", "derpp") or self.settings.dark
        row = self.pixels * (_FLOAT if "edited" in kind else 1)
        size = self.reservoir(slots, row + (_FLOAT * self.classes if logits else 0))
        one_each = (slots + 1) * _INTEGER
        if kind == "ring":  # counters of cells, ended tasks, readable slots
            return size + (self.cells + 1 + slots) * _INTEGER + self.settings.max_tasks
        if kind == "balanced":  # the cell of each slot; counters of cells, and those that came
            return size + one_each + 2 * (self.cells + 1) * _INTEGER
        if kind == "scored":
            return size + (slots + 1) * _FLOAT
        if kind.startswith("past"):  # the order of slots of ended tasks, the inverse, their number
            size += 2 * one_each + _INTEGER
        if "edited" in kind:  # edits of each slot, and draws for them
            size += one_each + _INTEGER
        return size

    def units(self) -> int:
        """Bytes of truth values for each class of each head."""
        return self.classes * (self.settings.max_tasks if self.settings.head == "multi" else 1)

    def sample(self) -> int:
        """Bytes of the sample of a task, as the network receives it."""
        return self.reservoir(self.numbers["importance_examples"], self.pixels * _FLOAT)

    def line(self) -> int:
        """Bytes of the sample that MC-SGD keeps of a task."""
        count = self.numbers["line_examples"]
        return self.reservoir(count, self.pixels) if count else 0

    def masks(self) -> int:
        """Bytes of the scores and masks of SupSup, whose network is dense."""
        widths = [self.pixels, *(self.settings.hidden or ()), self.classes]
        kernels = sum(m * n for m, n in itertools.pairwise(widths))
        tasks = self.settings.evaluated_tasks
        return kernels * (_FLOAT + tasks) + tasks


_STATES: dict[str, Callable[[Kept], int]] = {
    "ewc": lambda kept: kept.copies(4) + _INTEGER,
    "si": lambda kept: kept.copies(3),
    "online_ewc": lambda kept: kept.copies(2) + kept.sample(),
    "mas": lambda kept: kept.copies(2) + kept.sample(),
    "bgd": lambda kept: kept.copies(1) + _INTEGER,
    "lwf": lambda kept: kept.networks(1) + kept.units(),
    "clser": lambda kept: kept.networks(2) + _INTEGER,
    "gdumb": lambda kept: kept.networks(1),
    "mc_sgd": lambda kept: kept.copies(1) + kept.networks(1) + kept.line(),
    "mer": lambda kept: _INTEGER,
    "orthog_subspace": lambda kept: _INTEGER,
    "gec": lambda kept: 3 * _FLOAT,
    "supsup": lambda kept: kept.masks(),
}
"""Bytes of what methods keep beside their memory."""
_NO_FORMULA = ("cn_dpm", "icarl", "lpr", "ncm", "ranpac", "slda")
"""Their state depends on the layers of the network."""


def bytes_by_settings(settings: Settings, weights: int) -> int | None:
    """`nccl_tf.learner.stored.bytes_stored` of a run's learner, from its settings.

    Args:
        settings: Of the run.
        weights: Trainable numbers of the network.

    Returns:
        None for a stream or network of another making, a plugin's method, and those whose state
        depends on the layers of the network: CN-DPM, iCaRL, LPR, NCM, RanPAC, SLDA.
    """
    dataset = DATASETS.get(settings.dataset)
    method = METHODS.get(settings.method)
    if dataset is None or method is None or settings.network not in STATISTICS:
        return None
    source = dataset.source if dataset.source in _PIXELS else dataset.family
    is_own = not str(method.learner).startswith("nccl_tf.")
    if source not in _PIXELS or is_own or settings.method in _NO_FORMULA:
        return None
    numbers = settings.hyperparameters
    own = {row.name: numbers.get(row.name, row.default) for row in method.hyperparameters}
    added = sum(own[row.name] or 0 for row in method.hyperparameters if row.part == "outputs")
    of_split = dataset.num_classes * settings.max_tasks // settings.num_tasks
    kept = Kept(
        settings,
        weights,
        3 * settings.image_size**2 if settings.image_size else _PIXELS[str(source)],
        dataset.num_classes + added,
        of_split if dataset.kind == "split" else dataset.num_classes * settings.max_tasks,
        own,
    )
    state = _STATES.get(settings.method)
    average = kept.networks(1) + _INTEGER if settings.average_weights is not None else 0
    return kept.memory() + (state(kept) if state else 0) + average
