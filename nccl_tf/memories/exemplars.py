"""The memory of iCaRL: a ranked list of exemplars for each class of the finished tasks."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import take_rows
from nccl_tf.memories.memory import Memory
from nccl_tf.variables import assign_all, blank_like


@keras.saving.register_keras_serializable(package="nccl_tf")
class ExemplarMemory(Memory):
    """Ranked exemplars of each class, the best first, so that a shorter list is a prefix.

    Nothing is written during a task: the learner chooses exemplars at its end and passes them to
    `replace_contents`.

    Args:
        capacity: Number of slots M.
        example_shape: As for `Memory`: None for what the first `fit` delivers.
        per_class: m, exemplars of a class; None for floor(M / classes so far), so that the lists
            shrink as classes arrive.
        example_dtype: dtype of the stored inputs.
        seed: Seed of the draws.
        **kwargs: As for `Memory`.

    Raises:
        UserError: The capacity is below 1.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ExemplarMemory(50, per_class=10)
    """

    by_class = True
    _owns_private_names = True
    per_class: Final[int | None]

    takes_batches = False
    cannot: ClassVar[Mapping[str, str]] = {
        "graph": "is written as a whole, outside of the graph, at the end of a task",
        "learner": "is written by the exemplars that iCaRL chooses",
    }

    def __init__(
        self,
        capacity: int,
        example_shape: Any = None,
        per_class: int | None = None,
        example_dtype: str = "uint8",
        seed: int = 0,
        **kwargs: Any,
    ):
        self.per_class = per_class
        super().__init__(capacity, example_shape, example_dtype, seed, **kwargs)

    @property
    def reads_open_task(self) -> bool:
        return False

    def make_state(self) -> None:
        self.stored = self.state("stored", (), "int64")

    def readable_count(self) -> tf.Tensor:
        return self.stored.value

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return positions

    def class_quota(self, classes: int) -> int:
        """Exemplars a class may have when the memory holds `classes` classes, if any."""
        quota = self.capacity // max(classes, 1)
        return quota if self.per_class is None else min(self.per_class, quota)

    def contents(self) -> dict[int, tuple[Any, int]]:
        """The exemplars of each class, the best first.

        Returns:
            From class to (inputs [k, *example_shape], task id); several inputs in their structure.
        """
        stored = int(self.stored.numpy())
        labels, tasks = (part.numpy()[:stored] for part in (self.labels, self.tasks))
        inputs = tf.nest.map_structure(lambda column: column.numpy()[:stored], self.inputs)

        def of_class(own: np.ndarray) -> tuple[Any, int]:
            return take_rows(inputs, own), int(tasks[own][0])

        return {int(label): of_class(labels == label) for label in np.unique(labels)}

    def replace_contents(self, exemplars: dict[int, tuple[Any, int]]) -> None:
        """Replace everything in the memory.

        Args:
            exemplars: As `contents` returns them; each list is cut to `class_quota`.
        """
        quota = self.class_quota(len(exemplars))
        variables = [*tf.nest.flatten(self.inputs), self.labels, self.tasks]
        *inputs, labels, tasks = columns = [blank_like(variable.numpy()) for variable in variables]
        stored = 0
        for label, (examples, task) in sorted(exemplars.items()):
            parts = tf.nest.flatten(examples)
            slots = slice(stored, stored + min(quota, len(parts[0])))
            for column, part in zip(inputs, parts, strict=True):
                column[slots] = part[:quota]
            labels[slots], tasks[slots] = label, task
            stored = slots.stop
        assign_all(variables, columns)
        self.stored.assign(stored)
