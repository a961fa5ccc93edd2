"""The ring: the last m examples of each class of each task."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.task_classes import TaskClassIndex, classes_of_tasks, is_listed
from nccl_tf.variables import add_to_rows, read_rows, resize, write_rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class RingMemory(Memory):
    """Episodic memory with a first-in-first-out ring per class and task.

    Every example of the stream is written. Only examples of finished tasks are read, so that the
    memory is empty during the first task. The same label in two tasks has two rings.

    Args:
        slots_per_class: m, slots of each class in each task.
        task_classes: The classes of each task, in the order of the task ids; None for the heads
            of a multi-head learner, or for those of the stream that `nccl_tf.learn` is given.
        example_shape: As for `Memory`: None for what the first `fit` delivers.
        example_dtype: dtype of the stored inputs.
        seed: Seed of the draws.
        **kwargs: As for `Memory`.

    Raises:
        UserError: `slots_per_class` is no whole number from 1, `task_classes` is empty or no
            class numbers for each task, or there is an `example_shape` without them.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits")
    memory = nccl_tf.RingMemory(5, stream.task_classes)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = nccl_tf.NCCL(network, memory, heads=stream.heads)
    ```
    """

    _owns_private_names = True
    slots_per_class: Final[int]
    task_classes: Final[Any]
    _cells: TaskClassIndex
    _task_regions: Any

    by_class = True

    def __init__(
        self,
        slots_per_class: int,
        task_classes: Sequence[Sequence[int]] | None = None,
        example_shape: Any = None,
        example_dtype: Any = "uint8",
        seed: int = 0,
        **kwargs: Any,
    ):
        if not isinstance(slots_per_class, (int, np.integer)):
            raise UserError(
                f"received slots_per_class={slots_per_class!r}, expected a whole number from 1"
            )
        self.slots_per_class = int(slots_per_class)
        self.task_classes = None
        capacity = None if task_classes is None else self._index(task_classes)
        self._base.arguments.replace(
            {"task_classes": task_classes}, {"task_classes": self.task_classes}
        )
        if slots_per_class < 1:
            raise UserError(_refusal(slots_per_class, task_classes or ()))
        if capacity is None and example_shape is not None:
            raise UserError(
                f"received example_shape={example_shape!r} without task_classes, so the number of "
                "slots is unknown: name task_classes=stream.task_classes too, or leave "
                "example_shape out, and the first fit sets both"
            )
        super().__init__(capacity, example_shape, example_dtype, seed, **kwargs)

    def _index(self, task_classes: Sequence[Sequence[int]]) -> int:
        """Number the classes of each task; returns the slots that they need."""
        classes = classes_of_tasks("task_classes", task_classes)
        if self.slots_per_class < 1 or not classes or not all(classes):
            raise UserError(_refusal(self.slots_per_class, classes))
        object.__setattr__(self, "task_classes", classes)
        self._cells = TaskClassIndex(self.task_classes)
        self._task_regions = self._regions_of_tasks()
        return self.slots_per_class * self._cells.count

    def _list_classes(self, task_classes: Sequence[Sequence[int]]) -> None:
        """Take other classes of each task than the constructor received."""
        before = self.task_classes
        object.__setattr__(self, "capacity", self._index(task_classes))
        self._base.arguments.follow({"task_classes": before}, {"task_classes": self.task_classes})

    def build_for(
        self,
        batch: Batch,
        extras: Mapping[str, tuple[Sequence[int], str]] | None = None,
        task_classes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """As `Memory.build_for`; the heads of a learner are the classes of each task.

        Raises:
            UserError: The classes of each task are not known, or the examples have no fixed shape.
        """
        if self.task_classes is None:
            if task_classes is None:
                raise UserError(
                    "received a RingMemory without task_classes in a learner without heads, so "
                    "that the classes of each task are not known: pass "
                    "task_classes=stream.task_classes, call nccl_tf.learn with the whole stream, "
                    "or take a ReservoirMemory"
                )
            self._list_classes(task_classes)
        super().build_for(batch, extras)

    @property
    def reads_open_task(self) -> bool:
        return False

    def make_state(self) -> None:
        self.counts = self.state("counts", (self._cells.count + 1,), "int64")
        self.ended = self.state("ended", (len(self.task_classes),), "bool")
        self.readable = self.state("readable", (self.capacity,), "int64")
        self.num_readable = self.state("num_readable", (), "int64")

    def blank_spare_row(self) -> None:
        """As of any memory, and the counter of what is in none of the rings."""
        super().blank_spare_row()
        if self.is_allocated:
            write_rows(
                self.counts, tf.constant([self._cells.count], tf.int64), tf.zeros([1], tf.int64)
            )

    def _regions_of_tasks(self) -> np.ndarray:
        """int64 [tasks, most classes]: the regions, and the number that stands for none."""
        most = max(map(len, self.task_classes))
        regions = np.full((len(self.task_classes), most), self._cells.count, np.int64)
        for task, labels in enumerate(self.task_classes):
            first = int(np.searchsorted(self._cells.tasks, task))
            regions[task, : len(labels)] = first + np.arange(len(labels))
        return regions

    def add_classes(
        self, classes: Sequence[int], extras: Mapping[str, tuple[Sequence[int], str]]
    ) -> None:
        """As `Memory.add_classes`: rings for one more task, of the classes that no task lists."""
        # Without task_classes the first fit takes them from the heads, which have grown.
        listed = self.task_classes or [classes]
        new = [label for label in classes if not is_listed(label, listed)]
        if new:
            self._list_classes([*listed, new])
        if new and self.is_allocated:
            # The last row of these stands for no slot.
            columns = *self._base.inputs, self.labels, self.tasks, *self.columns.values()
            for variable in columns:
                resize(variable, (self.capacity + 1, *variable.shape[1:]), spare=1)
            resize(self.counts, (self._cells.count + 1,), spare=1)
            resize(self.ended, (len(self.task_classes),))
            resize(self.readable, (self.capacity,))
        super().add_classes(classes, extras)

    def readable_count(self) -> tf.Tensor:
        return self.num_readable.value

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return read_rows(self.readable, positions)

    def read_tasks(self) -> Batch:
        """All examples of every task.

        Returns:
            A batch whose parts have two leading dimensions, [tasks, slots of the largest task];
            the weights are 0 where a slot is empty and for tasks that have not ended.
        """
        slots, filled = self._slots_by_task()
        readable = filled & self.ended.value[:, None]
        rows = self.rows(slots.reshape(-1), tf.cast(tf.reshape(readable, [-1]), tf.float32))
        return rows.map(lambda part: tf.reshape(part, (*slots.shape, *part.shape[1:])))

    def read_task(self, task: tf.Tensor) -> Batch:
        """All examples of one task, whether it has ended or is open.

        Args:
            task: int64 scalar.

        Returns:
            A batch of as many rows as the largest task has slots, with weight 0 where one is empty.
        """
        slots, filled = self._slots_by_task()
        return self.rows(tf.gather(slots, task), tf.cast(tf.gather(filled, task), tf.float32))

    def _slots_by_task(self) -> tuple[np.ndarray, tf.Tensor]:
        """int64 and bool [tasks, slots of the largest task]: slots, and whether one is filled."""
        shape = (len(self.task_classes), -1)
        regions, places = self._task_regions[:, :, None], np.arange(self.slots_per_class)
        slots = np.minimum(regions * self.slots_per_class + places, self.capacity)
        filled = places < tf.gather(self.counts.value, regions)
        filled &= regions < self._cells.count
        return slots.reshape(shape).astype(np.int64), tf.reshape(filled, shape)

    def slots_for(self, batch: Batch) -> tf.Tensor:
        """As `Memory.slots_for`, and distinct: the batch may push out its own examples."""
        region = self._cells.lookup(batch)
        rank, later = _ranks(region)
        pointer = tf.math.floormod(read_rows(self.counts, region) + rank, self.slots_per_class)
        add_to_rows(self.counts, region, tf.ones_like(region))
        # What is in none of the rings has the last number, and so no slot below the capacity.
        slots = tf.minimum(region * self.slots_per_class + pointer, self.capacity)
        return tf.where(later < self.slots_per_class, slots, self.capacity)

    def write(self, batch: Batch) -> None:
        """As `Memory.write`, for a batch of any size."""
        batch = self.writable(batch)
        self.place(batch, self.slots_for(batch))

    def close_task(self, task_id: int) -> None:
        """Make the filled slots of an ended task readable. Graph code where the task is a tensor.

        Raises:
            UserError: The ring was built for fewer tasks.
        """
        number = tf.get_static_value(task_id)
        if number is not None and not 0 <= number < len(self.task_classes):
            raise UserError(
                f"received the end of task {task_id}, but the ring was built for "
                f"{len(self.task_classes)} tasks: pass the classes of every task as task_classes"
            )
        counts, before = map(tf.convert_to_tensor, (self.counts.value, self.ended.value))
        tasks = tf.constant(np.arange(len(self.task_classes)))
        ended = before | tf.equal(tasks, tf.cast(task_id, tf.int64))
        self.ended.assign(ended)
        # Filled slots only: a class may have had fewer examples than slots.
        filled = np.arange(self.slots_per_class)[None, :] < counts[:-1, None]
        chosen = tf.reshape(filled & tf.gather(ended, self._cells.tasks)[:, None], [-1])
        # In the order of the slots, with zeros after them.
        order = tf.argsort(tf.cast(tf.logical_not(chosen), tf.int32), stable=True)
        count = tf.math.count_nonzero(chosen)
        is_filled = tf.constant(np.arange(self.capacity)) < count
        self.readable.assign(tf.where(is_filled, tf.cast(order, tf.int64), np.int64(0)))
        self.num_readable.assign(count)


def _ranks(regions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """How many examples of the same region come before each one, int64 [n], and how many after.

    Args:
        regions: int64 [n].
    """
    # Comparisons of all pairs are a few kernels, where a sort is a dozen; of batches of one size
    # the two sides of a pair are a constant.
    count = regions.shape[0]
    index = np.arange(count) if count is not None else tf.range(tf.shape(regions)[0])
    sides = tf.stack([index[None, :] < index[:, None], index[None, :] > index[:, None]])
    same = tf.equal(regions[:, None], regions) & sides
    before, after = tf.unstack(tf.reduce_sum(tf.cast(same, tf.int64), axis=2))
    return before, after


def _refusal(slots: int, task_classes: Sequence[Sequence[int]]) -> str:
    return (
        f"received a ring of {slots} slots per class for {len(task_classes)} tasks; it needs at "
        "least one slot, one task and a class in each: raise --memory_per_class or --memory"
    )
