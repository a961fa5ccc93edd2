"""The ring: the last m examples of each class of each task."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.memory import Memory


@keras.saving.register_keras_serializable(package="nccl_tf")
class RingMemory(Memory):
    """Episodic memory with a first-in-first-out ring per class and task.

    Every example of the stream is written; only examples of ended tasks are read, so that the
    memory is empty during the first task. A label that comes again in another task has slots of
    its own there.

    Args:
        slots_per_class: m, slots of each class in each task.
        task_classes: The classes of each task, in the order of the task ids.
        image_shape: (height, width, channels).
        image_dtype: dtype of the stored images.
        seed: Seed of the draws.

    Raises:
        UserError: `slots_per_class` is below 1 or there is no task.
    """

    def __init__(
        self,
        slots_per_class: int,
        task_classes: Sequence[Sequence[int]],
        image_shape: tuple[int, ...],
        image_dtype: str = "uint8",
        seed: int = 0,
        **kwargs: Any,
    ):
        if slots_per_class < 1 or not task_classes or not all(len(c) for c in task_classes):
            raise UserError(
                f"received a ring of {slots_per_class} slots per class for {len(task_classes)} "
                "tasks; it needs at least one slot, one task and a class in each: raise "
                "--memory_per_class or --memory_size"
            )
        self.slots_per_class = int(slots_per_class)
        self.task_classes = [[int(label) for label in classes] for classes in task_classes]
        regions = [
            (task, label) for task, labels in enumerate(self.task_classes) for label in labels
        ]
        super().__init__(
            self.slots_per_class * len(regions), image_shape, image_dtype, seed, **kwargs
        )
        # Region number of each (task, class); the number after the last one for what has none.
        table = np.full(
            (len(self.task_classes), 1 + max(label for _, label in regions)), len(regions), np.int32
        )
        for region, key in enumerate(regions):
            table[key] = region
        self._region_table = table
        self._region_task = np.array([task for task, _ in regions], np.int32)
        self.counts = self._state("counts", (len(regions) + 1,), "int32")
        self.ended = self._state("ended", (len(self.task_classes),), "bool")
        self.readable = self._state("readable", (self.capacity,), "int32")
        self.num_readable = self._state("num_readable", (), "int32")

    def readable_count(self) -> tf.Tensor:
        return self.num_readable.value

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return self.readable.value.sparse_read(positions)

    def slots_for(self, batch: Batch) -> tf.Tensor:
        nowhere = len(self._region_task)
        tasks, classes = self._region_table.shape
        known = (batch.tasks < tasks) & (batch.labels < classes) & (batch.weights > 0)
        keys = tf.where(known, batch.tasks * classes + batch.labels, 0)
        region = tf.where(known, tf.gather(self._region_table.reshape(-1), keys), nowhere)
        index = tf.range(tf.shape(region)[0])
        same_and_earlier = tf.equal(region[:, None], region[None, :]) & (
            index[None, :] < index[:, None]
        )
        rank = tf.reduce_sum(tf.cast(same_and_earlier, tf.int32), axis=1)
        pointer = tf.math.floormod(
            self.counts.value.sparse_read(region) + rank, self.slots_per_class
        )
        self.counts.value.scatter_nd_add(region[:, None], tf.ones_like(region))
        return tf.where(region == nowhere, self.capacity, region * self.slots_per_class + pointer)

    def close_task(self, task_id: int) -> None:
        """Make the filled slots of an ended task readable.

        Raises:
            ValueError: The ring was built for fewer tasks.
        """
        if not 0 <= task_id < len(self.task_classes):
            raise ValueError(
                f"received the end of task {task_id}, but the ring was built for "
                f"{len(self.task_classes)} tasks: pass the classes of every task as task_classes"
            )
        ended = np.asarray(self.ended)
        ended[task_id] = True
        self.ended.assign(ended)
        # Filled slots only: a class may have had fewer examples than slots.
        counts = np.asarray(self.counts)[:-1]
        filled = np.arange(self.slots_per_class)[None, :] < counts[:, None]
        slots = np.flatnonzero(filled & ended[self._region_task][:, None])
        readable = np.zeros(self.capacity, np.int32)
        readable[: len(slots)] = slots
        self.readable.assign(readable)
        self.num_readable.assign(len(slots))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "slots_per_class": self.slots_per_class,
            "task_classes": self.task_classes,
        }
