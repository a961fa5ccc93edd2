"""The reservoir of GMED, whose inputs are edited in place."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.rng import number_of
from nccl_tf.variables import add_to_rows, read_rows, write_rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class EditedReservoirMemory(ReservoirMemory):
    """A reservoir whose stored inputs can be edited; it counts the edits of each example.

    Args:
        capacity: Number of slots M.
        example_shape: As for `Memory`: None for what the first `fit` delivers.
        example_dtype: dtype of the stored inputs, a float, since edits are fractions of a grey
            level.
        **kwargs: As for `ReservoirMemory`.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.EditedReservoirMemory(50)
    """

    def __init__(
        self,
        capacity: int,
        example_shape: Any = None,
        example_dtype: str = "float32",
        **kwargs: Any,
    ):
        super().__init__(capacity, example_shape, example_dtype, **kwargs)

    def build_for(
        self,
        batch: Batch,
        extras: Mapping[str, tuple[Sequence[int], str]] | None = None,
        task_classes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """As `Memory.build_for`, with float32 for inputs that are no floats.

        Raises:
            UserError: There are several inputs, or the examples have no fixed shape.
        """
        if tf.nest.is_nested(batch.inputs):
            raise UserError(
                "received several inputs for an EditedReservoirMemory, which edits one: take "
                "another memory and method, or a network of one input"
            )
        if not batch.inputs.dtype.is_floating:
            batch = batch._replace(inputs=tf.cast(batch.inputs, tf.float32))
        super().build_for(batch, extras, task_classes)

    def make_state(self) -> None:
        super().make_state()
        self.ages = self.state("ages", (self.capacity + 1,), "int64")
        self.edit_draws = self.state("edit_draws", (), "int64")

    def next_edit_seed(self) -> tf.Tensor:
        """int64 [2]: the seed of the next draw of examples to edit, independent of `read`."""
        # Seeds are non-negative and complements negative: edits never share the stream of reads,
        # and reads draw the same examples with and without edits.
        return tf.stack([-1 - number_of(self.seed), self.edit_draws.value.assign_add(1)])

    def read_ages(self, slots: tf.Tensor) -> tf.Tensor:
        """int64 [n]: how often the example in each slot (int64 [n]) was edited."""
        return read_rows(self.ages, slots)

    def edit(self, slots: tf.Tensor, inputs: tf.Tensor, weights: tf.Tensor) -> None:
        """Overwrite the inputs in slots and count the edits; labels and tasks stay.

        Args:
            slots: int64 [n].
            inputs: [n, *example_shape], in the memory's dtype.
            weights: float32 [n]; examples with weight 0 are ignored.
        """
        slots = tf.where(weights > 0, slots, self.capacity)
        write_rows(self.inputs, slots, inputs)
        add_to_rows(self.ages, slots, tf.ones_like(slots, tf.int64))

    def slots_for(self, batch: Batch) -> tf.Tensor:
        slots = super().slots_for(batch)
        written = tf.where(batch.weights > 0, slots, self.capacity)
        write_rows(self.ages, written, tf.zeros_like(written, tf.int64))
        return slots
