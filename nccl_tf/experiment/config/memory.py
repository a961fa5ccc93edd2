"""The size of a replay memory from what a user gave."""

from collections.abc import Mapping
from typing import Any

from nccl_tf.errors import UnusedFlagError, UserError
from nccl_tf.experiment.config.run_flags import MEMORY_SIZES
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods.registry import METHODS, Method
from nccl_tf.records.settings import SETTINGS

MEMORY_FLAGS = (*MEMORY_SIZES, "memory_batch_size", "reservoir")


def resolve_memory(
    flag_values: Mapping[str, Any], method: Method, classes_per_task: int, evaluated_tasks: int
) -> dict[str, Any]:
    """The memory's settings, by the names of `Settings`.

    A ring has m slots for each class of each task, or floor(total / (classes per task x evaluated
    tasks)) of a total; exemplars are m for each class, or share the total among the classes so far;
    every other memory holds m x classes per task x evaluated tasks, or the total.

    Args:
        flag_values: Flag values by name; None or absent means the default.
        method: Row of the registry.
        classes_per_task: Classes of one task.
        evaluated_tasks: Tasks that are not held out; `max_tasks` does not shorten this.

    Raises:
        UserError: The method has no memory or no reservoir, a size is out of range or leaves a
            class without a slot, both sizes are given, or the memory batch exceeds the capacity.
    """
    _check_method_has_them(flag_values, method)
    if method.memory is None:
        return dict.fromkeys(
            ("memory", "memory_slots", "memory_capacity", "memory_batch_size", "reservoir")
        )
    cells = classes_per_task * evaluated_tasks
    capacity, kind = _capacity(flag_values, cells), get_memory(method.memory)
    capacity, slots = kind.shares(capacity, cells, f"--memory={capacity}")
    if kind.sizing == "per_class" and flag_values.get("memory") is None:
        slots = capacity // cells
    rule = SETTINGS["reservoir"].value(flag_values) if kind.has_rule else None
    batch = None
    if method.memory_batch:
        batch = SETTINGS["memory_batch_size"].value(flag_values, method.memory_batch)
        if batch > capacity:
            raise UserError(
                f"--memory_batch_size={batch} is above the memory's capacity of {capacity} "
                "examples: draw fewer, or give a larger --memory_per_class or --memory"
            )
    return {
        "memory": method.memory,
        "memory_slots": slots,
        "memory_capacity": capacity,
        "memory_batch_size": batch,
        "reservoir": rule,
    }


def _capacity(flag_values: Mapping[str, Any], cells: int) -> int:
    per_class, total = flag_values.get("memory_per_class"), flag_values.get("memory")
    if per_class is not None and total is not None:
        raise UserError(
            f"--memory_per_class={per_class} and --memory={total} both size the memory: "
            "give one of them"
        )
    if total is not None:
        return MEMORY_SIZES["memory"].value(flag_values)
    return cells * MEMORY_SIZES["memory_per_class"].value(flag_values)


def _check_method_has_them(flag_values: Mapping[str, Any], method: Method) -> None:
    if (
        method.memory
        and not method.memory_batch
        and flag_values.get("memory_batch_size") is not None
    ):
        raise UnusedFlagError(
            "memory_batch_size",
            f"--memory_batch_size={flag_values['memory_batch_size']}: {method.name} draws no batch "
            "from its memory; leave it out",
        )
    for name in MEMORY_FLAGS:
        kind = "reservoir" if name == "reservoir" else "memory"
        having = [row.name for row in METHODS.values() if _has(row, kind)]
        if flag_values.get(name) is not None and method.name not in having:
            raise UnusedFlagError(
                name,
                f"--{name}={flag_values[name]}: {method.name} has no {kind}; leave it out or "
                f"choose one of {', '.join(having)}",
            )


def _has(method: Method, kind: str) -> bool:
    if method.memory is None:
        return False
    return kind != "reservoir" or get_memory(method.memory).has_rule
