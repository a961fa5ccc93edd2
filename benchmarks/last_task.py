"""The last task of a stream, beside a ring that is full of the tasks before it."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import Batch
from nccl_tf.streams.arrays import Examples

BATCH, SLOTS = 10, 5


def examples(
    steps: int, shape: tuple[int, int, int], classes: Sequence[int], batch: int = BATCH
) -> Examples:
    """Random images and labels for so many batches."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (batch * steps, *shape), dtype=np.uint8)
    return Examples(images, random.choice(classes, batch * steps).astype(np.int32))


def full_ring(
    heads: Sequence[Sequence[int]], shape: tuple[int, int, int], slots: int = SLOTS
) -> nccl_tf.RingMemory:
    """A ring of which all tasks but the last have ended."""
    memory = nccl_tf.RingMemory(slots, heads, shape)
    for task, head in enumerate(heads[:-1]):
        labels = tf.constant(np.repeat(np.array(head, np.int32), slots))
        images = np.random.default_rng(task).integers(0, 256, (len(labels), *shape), np.uint8)
        tasks, ones = tf.fill([len(labels)], task), tf.ones([len(labels)])
        memory.write(Batch(tf.constant(images), labels, tasks, ones))
        memory.close_task(task)
    return memory


def readable(memory: nccl_tf.RingMemory) -> Examples:
    """What a ring's ended tasks hold, task after task."""
    slots = memory.readable.numpy()[: int(memory.num_readable.numpy())]
    return Examples(memory.inputs.numpy()[slots], memory.labels.numpy()[slots])


def fitted(
    learner: nccl_tf.Learner,
    part: Examples,
    heads: Sequence[Sequence[int]],
    batch: int = BATCH,
) -> Callable[[], None]:
    """A call that fits the last task once as the command does, with a compiled learner."""
    last = len(heads) - 1
    task = nccl_tf.Task(last, tuple(heads[last]), len(part.labels), lambda: part, lambda: part)
    data = task.train_batches(batch)
    return lambda: learner.fit(data, task_id=last, end_task=False, verbose=0)
