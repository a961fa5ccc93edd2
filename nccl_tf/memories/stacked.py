"""Several memories read and written at once, each as it would be alone.

What is reckoned for a draw are many small operations on a few whole numbers, so that all memories
together cost hardly more of them than one.
"""

from collections.abc import Sequence

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.memory import Memory, choose, keep_last


def read_all(memories: Sequence[Memory], count: int) -> Batch:
    """`Memory.read` of each memory: a batch with a leading dimension for the memories.

    Args:
        memories: S memories of one image shape.
        count: Rows of each.
    """
    seeds = tf.stack([memory.next_seed() for memory in memories])
    stored = tf.stack([memory.readable_count() for memory in memories])
    positions, weights = choose(stored, count, seeds)
    each = zip(memories, tf.unstack(positions), tf.unstack(weights), strict=True)
    rows = [memory.rows(memory.readable_slots(p), w) for memory, p, w in each]
    return Batch(*map(tf.stack, zip(*rows, strict=True)))


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
