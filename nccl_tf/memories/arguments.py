"""The keyword arguments that memories inherit, named for type checkers and editors.

As `nccl_tf.learner.arguments` does it for learners.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict


class MemoryArguments(TypedDict, total=False):
    """What a subclass of `Memory` inherits."""

    extras: Mapping[str, tuple[Sequence[int], str]] | None
    label_shape: Sequence[int]
    label_dtype: str
    memory_dir: str | None
    name: str | None


class ReservoirArguments(MemoryArguments, total=False):
    """What a subclass of `ReservoirMemory` inherits."""

    rule: str
    exclude_current_task: bool
    seed: int
