"""The kinds of replay memory by name: a row each, without importing TensorFlow."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from nccl_tf.errors import UserError, checked_name
from nccl_tf.extensions.registration import add_row

Sizing = Literal["total", "per_class", "per_class_and_task"]
SIZES = ("capacity", "slots", "rule", "task_classes")
"""What `MemoryKind.build` fills arguments of a constructor with."""


@dataclass(frozen=True, kw_only=True)
class MemoryKind:
    """A row of the table of memories.

    Args:
        name: Name in the methods' rows, in settings and in records.
        memory: "module:Class" of the memory, or the class itself.
        sizing: What the size that a user gives is shared among: "total" (nothing), "per_class" (the
            classes, as they come) or "per_class_and_task" (the classes of every task).
        has_rule: Whether it keeps a uniform sample of the stream, by the rule of `--reservoir`.
        sized_by: Names of the constructor's arguments by what fills them: "slots" (of each class,
            None where a total is shared), "capacity" (of the whole memory), "rule" or
            "task_classes". `example_shape` and `seed` it always takes.
        arguments: Further arguments of the constructor, the same for every run.
        reads_open_task: As `Memory.reads_open_task` of a memory of this kind.

    Raises:
        UserError: A key of `sized_by` fills nothing.
    """

    name: str
    memory: str | type
    sizing: Sizing = "total"
    has_rule: bool = False
    sized_by: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"capacity": "capacity"})
    )
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    reads_open_task: bool = True

    def __post_init__(self) -> None:
        for source in self.sized_by:
            checked_name("key of sized_by", source, SIZES)

    def memory_class(self) -> Any:
        """Import and return the memory's class (this imports TensorFlow)."""
        return import_class(self.memory)

    def shares(self, total: int, cells: int, given: str) -> tuple[int, int | None]:
        """The slots of the whole memory and those of each class, of a total.

        Args:
            total: Examples that may be stored.
            cells: The classes of all tasks, a class counted in each task that has it.
            given: How the total was given, for the message.

        Returns:
            `capacity` and `slots` of `build`.

        Raises:
            UserError: The total leaves a class without a slot.
        """
        if self.sizing == "total":
            return total, None
        if total < cells:
            raise UserError(
                f"{given} leaves a {self.name} memory no slot for each class: expected at least "
                f"{cells}, the classes of all tasks"
            )
        if self.sizing == "per_class":
            return total, None
        return total // cells * cells, total // cells

    def build(
        self,
        *,
        capacity: int | None,
        task_classes: Any,
        seed: int,
        example_shape: Any = None,
        slots: int | None = None,
        rule: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """An empty memory of this kind.

        Args:
            capacity: Slots of the whole memory; None where `slots` says it.
            task_classes: The classes of each task.
            seed: Seed of the memory's draws.
            example_shape: Shape of one example, such as (height, width, channels); None for what
                the first `fit` delivers.
            slots: Slots of each class (of each task, for "per_class_and_task").
            rule: The rule of `--reservoir`.
            **kwargs: Further arguments of the constructor, such as `example_dtype`.
        """
        values = {
            "capacity": capacity,
            "slots": slots,
            "rule": rule,
            "task_classes": task_classes,
        }
        sizes = {argument: values[source] for source, argument in self.sized_by.items()}
        # What the kind says holds whatever the stream delivers: edits need floats.
        arguments = {**kwargs, **self.arguments}
        return self.memory_class()(**sizes, example_shape=example_shape, seed=seed, **arguments)


def import_class(reference: str | type) -> Any:
    """The class that "module:Class" names, or the class itself."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


_RESERVOIR_SIZE = {"capacity": "capacity", "rule": "rule"}
_PAST = {"exclude_current_task": True}
_FLOATS = {"example_dtype": "float32"}
_RESERVOIR = "nccl_tf.memories.reservoir:ReservoirMemory"
_EDITED = "nccl_tf.memories.edited_reservoir:EditedReservoirMemory"

MEMORIES: dict[str, MemoryKind] = {
    row.name: row
    for row in (
        MemoryKind(
            name="ring",
            memory="nccl_tf.memories.ring:RingMemory",
            sizing="per_class_and_task",
            sized_by={"slots": "slots_per_class", "task_classes": "task_classes"},
            reads_open_task=False,
        ),
        MemoryKind(name="reservoir", memory=_RESERVOIR, has_rule=True, sized_by=_RESERVOIR_SIZE),
        MemoryKind(
            name="past_reservoir",
            memory=_RESERVOIR,
            has_rule=True,
            sized_by=_RESERVOIR_SIZE,
            arguments=_PAST,
            reads_open_task=False,
        ),
        MemoryKind(
            name="edited_reservoir",
            memory=_EDITED,
            has_rule=True,
            sized_by=_RESERVOIR_SIZE,
            arguments=_FLOATS,
        ),
        MemoryKind(
            name="past_edited_reservoir",
            memory=_EDITED,
            has_rule=True,
            sized_by=_RESERVOIR_SIZE,
            arguments={**_PAST, **_FLOATS},
            reads_open_task=False,
        ),
        MemoryKind(
            name="balanced",
            memory="nccl_tf.memories.balanced:BalancedMemory",
            sized_by={"capacity": "capacity", "task_classes": "task_classes"},
        ),
        MemoryKind(
            name="exemplars",
            memory="nccl_tf.memories.exemplars:ExemplarMemory",
            sizing="per_class",
            sized_by={"capacity": "capacity", "slots": "per_class"},
            reads_open_task=False,
        ),
        MemoryKind(name="scored", memory="nccl_tf.memories.scored:ScoredMemory"),
        MemoryKind(
            name="short_term",
            memory="nccl_tf.memories.short_term:ShortTermMemory",
            reads_open_task=False,
        ),
    )
}


def register_memory(kind: MemoryKind) -> None:
    """Add a kind of memory to the table, for the methods that name it.

    Args:
        kind: Its row.

    Raises:
        UserError: The name is taken, or no lower-case identifier.
    """
    add_row(MEMORIES, kind, "kind of memory")


def get_memory(name: str) -> MemoryKind:
    """The row of a kind of memory.

    Raises:
        UserError: No kind has that name; the message lists the names and suggests the nearest.
    """
    return MEMORIES[checked_name("kind of memory", name, MEMORIES)]


def check_memory(learner: str, memory: Any, wanted: Any) -> None:
    """Check that a learner can work with a memory.

    Args:
        learner: Its class, for the message.
        memory: What it received as memory.
        wanted: The class of memories that it works with; `Memory` for those that `write` what
            comes.

    Raises:
        UserError: It cannot.
    """
    if _fits(type(memory), wanted):
        return
    classes = [kind.memory_class() for kind in MEMORIES.values()]
    names = dict.fromkeys(each.__name__ for each in classes if _fits(each, wanted))
    what = f"the class {memory.__name__}" if isinstance(memory, type) else type(memory).__name__
    raise UserError(
        f"received {what} as the memory of {learner}, expected {' or '.join(names)}: build one of "
        "these, or take a method for the memory"
    )


def _fits(memory: Any, wanted: Any) -> bool:
    return issubclass(memory, wanted) and (memory.takes_batches or not wanted.takes_batches)
