"""Several memories read and written at once, each as it would be alone.

What is reckoned for a draw are many small operations on a few whole numbers, so that all memories
together cost hardly more of them than one.
"""

from collections.abc import Sequence

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.memory import Memory, choose, keep_last
from nccl_tf.memories.ring import RingMemory


def read_all(memories: Sequence[Memory], count: int) -> Batch:
    """`Memory.read` of each memory: a batch with a leading dimension for the memories.

    Args:
        memories: S memories of one image shape.
        count: Rows of each.
    """
    seeds = tf.stack([memory.next_seed() for memory in memories])
    stored = tf.stack([memory.readable_count() for memory in memories])
    positions, weights = choose(stored, count, seeds)
    pairs = zip(memories, tf.unstack(positions), strict=True)
    return rows_of_all(memories, [memory.readable_slots(p) for memory, p in pairs], weights)


def rows_of_all(
    memories: Sequence[Memory], slots: Sequence[tf.Tensor] | tf.Tensor, weights: tf.Tensor
) -> Batch:
    """`Memory.rows` of each memory: a batch with a leading dimension for the memories.

    Args:
        memories: S memories of one image shape.
        slots: int32 [S, n].
        weights: float32 [S, n].
    """
    each = zip(memories, tf.unstack(slots), tf.unstack(weights), strict=True)
    rows = [memory.rows(own_slots, own_weights) for memory, own_slots, own_weights in each]
    return Batch(*map(tf.stack, zip(*rows, strict=True)))


def draw_all_ahead(
    memories: Sequence[RingMemory], count: int, steps: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`RingMemory.draw_ahead` of each memory: slots and weights [steps, S, count]."""
    slots, weights = zip(*(memory.draw_ahead(count, steps) for memory in memories), strict=True)
    return tf.stack(slots, axis=1), tf.stack(weights, axis=1)


def write_all(memories: Sequence[Memory], batch: Batch) -> None:
    """`Memory.write` of each memory.

    Args:
        memories: S memories of one image shape.
        batch: Examples, with a leading dimension S.
    """
    batches = [Batch(*parts) for parts in zip(*map(tf.unstack, batch), strict=True)]
    pairs = zip(memories, batches, strict=True)
    slots = tf.stack([memory.kept_slots_for(own) for memory, own in pairs])
    slots = keep_last(slots, tf.constant([[memory.capacity] for memory in memories]))
    for memory, own, kept in zip(memories, batches, tf.unstack(slots), strict=True):
        memory.place(own, kept)
