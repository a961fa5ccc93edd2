"""The base of the methods that keep a memory."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import numpy as np

from nccl_tf.batch import Batch, BatchStack, split_inputs
from nccl_tf.errors import UserError
from nccl_tf.learner.fitting.hints import hint_of_shared_memory
from nccl_tf.learner.fitting.input_checks import check_inputs
from nccl_tf.learner.growth import Growth
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.step import Step
from nccl_tf.memories.base import Memory
from nccl_tf.memories.columns import missing_columns
from nccl_tf.memories.kinds import check_memory
from nccl_tf.memories.task_classes import class_table


class MemoryLearner(Learner):
    """A learner with a memory, which is written after every step and learns when a task ends.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: The memory.
        **kwargs: As for `Learner`.

    Raises:
        UserError: The method cannot work with this kind of memory, or needs a column that it lacks.
    """

    memory_class: ClassVar[type[Memory]] = Memory
    """The class of memories that the method works with: by default those that a step writes."""
    needs_memory: ClassVar[bool] = True
    """Whether the method has no meaning without a memory."""
    dark: float = 0.0
    """Weight of dark replay, 0 where the method has none."""

    def __init__(self, network: keras.Model, memory: Memory | None, **kwargs: Any):
        super().__init__(network, **kwargs)
        if memory is not None or self.needs_memory:
            check_memory(type(self).__name__, memory, self.memory_class)
        self.memory: Any = memory
        if memory is not None:
            self.check_columns()
            hint_of_shared_memory(memory)
        if self.reads_from_disk:
            self._check_memory_dir()

    @property
    def reads_from_disk(self) -> bool:
        return self.memory is not None and self.memory.memory_dir is not None

    def _check_memory_dir(self) -> None:
        """Refuse a memory on disk where a step reads or keeps more than is known before it."""
        name = type(self).__name__
        begins = f"received a memory with memory_dir={self.memory.memory_dir!r}"
        if not (self.declares("prefetch") and self.declares("deferred_logs")):
            raise UserError(
                f"{begins} for {name}, which reads more of it in a step than one batch that is "
                "drawn ahead: take ExperienceReplay, AGEM or NCCL, or leave memory_dir out"
            )
        if self.memory.extras or self.dark:
            raise UserError(
                f"{begins} and further columns, such as the logits of dark replay, which are kept "
                "with each step: leave memory_dir or dark out"
            )
        if self.replicas.count > 1:
            raise UserError(
                f"{begins} for {self.replicas.count} replicas, expected one device: leave "
                "memory_dir out"
            )

    @classmethod
    def memory_extras(cls, num_classes: int) -> dict[str, tuple[tuple[int, ...], str]]:
        """The columns that a memory of this method needs beside inputs, labels and tasks.

        Args:
            num_classes: Logits of the network.

        Returns:
            As the `extras` of `Memory`; none by default.
        """
        return {}

    def check_columns(self) -> None:
        """Check that the memory has the columns of `memory_extras`.

        A memory that is not allocated yet gets them.

        Raises:
            UserError: One is missing, or has entries of another shape.
        """
        wanted = self.memory_extras(self.num_classes)
        for column in missing_columns(self.memory, wanted):
            raise UserError(
                f"received a {type(self.memory).__name__} without the column {column!r} with "
                f"entries of shape {tuple(wanted[column][0])}, which {type(self).__name__} keeps "
                f"of an example: build it with extras={wanted}, or without shapes"
            )

    def class_table(self) -> np.ndarray | None:
        """bool [tasks, classes]: those of the heads that the memory has a place for as well."""
        task_classes, heads = getattr(self.memory, "task_classes", None), super().class_table()
        if task_classes is None:
            return heads
        table = class_table(task_classes, self.num_classes)
        if heads is None:
            return table
        count = min(len(table), len(heads))
        return table[:count] & heads[:count]

    def grow_state(self, growth: Growth) -> None:
        super().grow_state(growth)
        if self.memory is not None:
            new = range(growth.before, growth.after)
            self.memory.add_classes(new, self.memory_extras(growth.after))
            if not self.example_loss.takes_class_numbers:
                self.memory.grow_labels(growth.after)

    def see_first(
        self, first: Callable[[], Any], task_classes: Sequence[Sequence[int]] | None = None
    ) -> None:
        if self.heads is not None:
            task_classes = self.heads.classes
        for memory in self.memories():
            if not memory.is_allocated:
                batch = self.as_batch(first())
                check_inputs(self.network, batch.inputs)
                with self.distribute_strategy.scope():
                    memory.build_for(batch, task_classes)

    def check_element(self, element: Any) -> None:
        """As `FittedModel.check_element`, and that a batch fits into the memories."""
        super().check_element(element)
        # Batches are stacked where their shapes are known, and then the graph knows them.
        if not isinstance(element, BatchStack):
            for memory in self.memories():
                memory.check_shapes(split_inputs(element[0])[0])

    def check_saves(self) -> None:
        """As `SavedModel.check_saves`, and that the memory is not in a file that ends with us."""
        super().check_saves()
        for memory in self.memories():
            memory.check_holds_inputs("a saved model has its memory with it")

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """As in Keras; the weights have the memory's examples among them.

        Raises:
            UserError: A memory has no shapes yet, so that its examples would be left out.
        """
        for memory in self.memories():
            if not memory.is_allocated:
                raise UserError(
                    f"received load_weights for a {type(memory).__name__} without shapes, which "
                    "has no place for the examples in the file: build it with example_shape and "
                    "example_dtype, or save the whole model and take nccl_tf.load_model"
                )
        super().load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)

    def memories(self) -> list[Memory]:
        """All memories that the method keeps."""
        return [] if self.memory is None else [self.memory]

    def after_step(self, batch: Batch, step: Step) -> None:
        self.memory.write(batch)

    def checked_loss(self, loss: Any) -> ExampleLoss:
        """As `OptimizedModel.checked_loss`, for the memory too."""
        found = super().checked_loss(loss)
        if not found.has_classes and any(memory.by_class for memory in self.memories()):
            raise UserError(
                f"received {found.name} with a {type(self.memory).__name__}, which keeps examples "
                "by their class: take a ReservoirMemory, or a categorical cross-entropy"
            )
        return found

    def on_task_end(self, task_id: int) -> None:
        super().on_task_end(task_id)
        # A memory that is not allocated has seen nothing of the task.
        if self.memory.is_allocated:
            self.memory.close_task(task_id)

    def get_config(self) -> dict[str, Any]:
        memory = keras.saving.serialize_keras_object(self.memory)
        return {**super().get_config(), "memory": memory}
