"""The memory of GDumb: a greedily balanced sample of the classes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.task_classes import TaskClassIndex, classes_of_tasks, is_listed
from nccl_tf.rng import uniform_below
from nccl_tf.variables import add_to_rows, resize, write_rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class BalancedMemory(Memory):
    """The greedy balancing sampler (Prabhu et al., 2020, algorithm 1).

    While slots are free, every example is stored. Then an example is stored if its class is new or
    has fewer than floor(M / classes seen) examples; it replaces a random example of the largest
    class. The same label in two tasks counts as two classes.

    Args:
        capacity: Number of slots M.
        task_classes: The classes of each task, in the order of the task ids.
        example_shape: As for `Memory`: None for what the first `fit` delivers.
        example_dtype: dtype of the stored inputs.
        seed: Seed of the draws.
        **kwargs: As for `Memory`.

    Raises:
        UserError: The capacity is below 1, or there is no class.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.BalancedMemory(50, task_classes=[[0, 1], [2, 3]])
    """

    _owns_private_names = True
    task_classes: Final[list[list[int]]]
    _index: TaskClassIndex

    by_class = True

    def __init__(
        self,
        capacity: int,
        task_classes: Sequence[Sequence[int]],
        example_shape: Any = None,
        example_dtype: str = "uint8",
        seed: int = 0,
        **kwargs: Any,
    ):
        self.task_classes = classes_of_tasks("task_classes", task_classes)
        if not any(self.task_classes):
            raise UserError(
                f"received task_classes={task_classes!r}, expected the class numbers of each task, "
                "such as [[0, 1], [2, 3]]"
            )
        self._base.arguments.replace(
            {"task_classes": task_classes}, {"task_classes": self.task_classes}
        )
        self._index = TaskClassIndex(self.task_classes)
        super().__init__(capacity, example_shape, example_dtype, seed, **kwargs)

    def make_state(self) -> None:
        self.stored = self.state("stored", (), "int64")
        self.cells = self.state("cells", (self.capacity + 1,), "int64")
        # The last entry counts padding and examples of unknown classes.
        self.counts = self.state("counts", (self._index.count + 1,), "int64")
        # 1 for a class that has been stored; a GPU scatters no bool.
        self.seen = self.state("seen", (self._index.count + 1,), "int64")

    def add_classes(
        self, classes: Sequence[int], extras: Mapping[str, tuple[Sequence[int], str]]
    ) -> None:
        """As `Memory.add_classes`: the classes that no task lists are those of one more task."""
        new = [label for label in classes if not is_listed(label, self.task_classes)]
        if new:
            before = self.task_classes
            object.__setattr__(self, "task_classes", [*map(list, before), new])
            self._base.arguments.follow(
                {"task_classes": before}, {"task_classes": self.task_classes}
            )
            self._index = TaskClassIndex(self.task_classes)
            for variable in (self.counts, self.seen) if self.is_allocated else ():
                resize(variable, (self._index.count + 1,), spare=1)
        super().add_classes(classes, extras)

    def readable_count(self) -> tf.Tensor:
        return self.stored.value

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return positions

    def slots_for(self, batch: Batch) -> tf.Tensor:
        cells = self._index.lookup(batch)
        # If no example is accepted now, none is accepted later: a refusal changes no state.
        return tf.cond(
            tf.reduce_any(self._accepts(cells)),
            lambda: self._place_in_order(cells),
            lambda: tf.fill(tf.shape(cells), tf.constant(self.capacity, tf.int64)),
        )

    def _accepts(self, cells: tf.Tensor) -> tf.Tensor:
        """bool, in the shape of `cells`: whether an example of a cell would be stored now."""
        quota = self.capacity // tf.maximum(tf.reduce_sum(self.seen.value), 1)
        new = tf.equal(tf.gather(self.seen.value, cells), 0)
        short = tf.gather(self.counts.value, cells) < quota
        room = self.stored.value < self.capacity
        return (cells < self._index.count) & (room | new | short)

    def _place_in_order(self, cells: tf.Tensor) -> tf.Tensor:
        count = tf.shape(cells)[0]
        # The range is so wide that the remainder is uniform for every number of slots.
        draws = uniform_below(self.next_seed(), tf.fill([count], tf.constant(2**31 - 1, tf.int64)))
        slots = tf.TensorArray(tf.int64, count, element_shape=())

        def place(i: tf.Tensor, slots: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            slot = tf.cond(
                self._accepts(cells[i]),
                lambda: self._place(cells[i], draws[i]),
                lambda: tf.constant(self.capacity, tf.int64),
            )
            return i + 1, slots.write(i, slot)

        placed = tf.while_loop(lambda i, _: i < count, place, (0, slots), parallel_iterations=1)
        return placed[1].stack()

    def _place(self, cell: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        """Count an example and return its slot: a free one, or one of the largest cell."""
        slot = tf.cond(
            self.stored.value < self.capacity,
            lambda: self.stored.value.assign_add(1) - 1,
            lambda: self._evict(draw),
        )
        write_rows(self.cells, slot[None], cell[None])
        add_to_rows(self.counts, cell[None], tf.constant([1], tf.int64))
        write_rows(self.seen, cell[None], tf.constant([1], tf.int64))
        return slot

    def _evict(self, draw: tf.Tensor) -> tf.Tensor:
        largest = tf.argmax(self.counts.value[:-1])
        # The k-th of its slots, without their list, whose length would depend on values.
        is_candidate = tf.cast(tf.equal(self.cells.value[: self.capacity], largest), tf.int64)
        before = tf.cumsum(is_candidate)
        slot = tf.searchsorted(before, (draw % before[-1] + 1)[None], out_type=tf.int64)[0]
        add_to_rows(self.counts, largest[None], tf.constant([-1], tf.int64))
        return slot
