"""The memory of iCaRL: a few exemplars of each class of the ended tasks, in order of merit."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.memories.base import Memory


@keras.saving.register_keras_serializable(package="nccl_tf")
class ExemplarMemory(Memory):
    """Lists of exemplars, the best of each class first, so that a shorter list is a prefix.

    Nothing is written in the course of a task: `keep` takes lists that a learner chose at its end.

    Args:
        capacity: Number of slots M.
        example_shape: Shape of one example, such as (height, width, channels).
        per_class: m, exemplars of a class; None for floor(M / classes so far), so that the lists
            grow shorter as classes come.
        example_dtype: dtype of the stored inputs.
        seed: Seed of the draws.

    Raises:
        UserError: The capacity is below 1.
    """

    def __init__(
        self,
        capacity: int,
        example_shape: tuple[int, ...],
        per_class: int | None = None,
        example_dtype: str = "uint8",
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(capacity, example_shape, example_dtype, seed, **kwargs)
        self.per_class = per_class
        self.stored = self._state("stored", (), "int32")

    def readable_count(self) -> tf.Tensor:
        return self.stored.value

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return positions

    def length(self, classes: int) -> int:
        """The exemplars that each of a number of classes may have."""
        share = self.capacity // classes
        return share if self.per_class is None else min(self.per_class, share)

    def contents(self) -> dict[int, tuple[np.ndarray, int]]:
        """The exemplars of each class, the best first: inputs [k, h, w, c], and their task."""
        stored = int(self.stored.numpy())
        inputs, labels, tasks = (
            part.numpy()[:stored] for part in (self.inputs, self.labels, self.tasks)
        )
        return {
            int(label): (inputs[labels == label], int(tasks[labels == label][0]))
            for label in np.unique(labels)
        }

    def keep(self, exemplars: dict[int, tuple[np.ndarray, int]]) -> None:
        """Replace the contents.

        Args:
            exemplars: In the form of `contents`; each list is cut to `length`.
        """
        length = self.length(len(exemplars))
        position = 0
        rows = [np.zeros(v.shape, v.dtype) for v in (self.inputs, self.labels, self.tasks)]
        for label, (inputs, task) in sorted(exemplars.items()):
            part = slice(position, position + min(length, len(inputs)))
            rows[0][part], rows[1][part], rows[2][part] = inputs[:length], label, task
            position = part.stop
        for variable, value in zip((self.inputs, self.labels, self.tasks), rows, strict=True):
            variable.assign(value)
        self.stored.assign(position)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "capacity": self.capacity,
            "per_class": self.per_class,
        }
