"""Batches of one task whose order is another one in every epoch."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.batches import gather_rows, pad_order

if TYPE_CHECKING:
    import tensorflow as tf


def epoch_batches(
    examples: Examples,
    task_ids: int | np.ndarray,
    orders: Iterable[np.ndarray],
    batch_size: int,
) -> "tf.data.Dataset":
    """A dataset that is read once in each epoch, and delivers the order of the epoch at hand.

    The order of an epoch depends on its number alone, not on how often the dataset was read, so
    that training can resume at any epoch.

    Args:
        examples: As for `make_batches`, like the next three.
        task_ids: The task of all examples, or of each.
        orders: int64 [n] for each epoch.
        batch_size: Examples in a batch, >= 1.

    Returns:
        A dataset with the elements of `Task.train_batches`, and an attribute `by_index`, whose
        `begin_epoch` chooses the order of the next reading: that of an epoch, from 0.
    """
    import tensorflow as tf

    parts = [pad_order(order, batch_size) for order in orders]
    with tf.device("CPU:0"):
        indices, weights = (tf.constant(np.stack(column)) for column in zip(*parts, strict=True))
        epoch = tf.Variable(0, dtype=tf.int64)

    def rows(_: "tf.Tensor") -> "tf.data.Dataset":
        return tf.data.Dataset.from_tensor_slices((indices[epoch], weights[epoch]))

    # The variable is read within the pipeline, when an epoch begins to iterate.
    order = tf.data.Dataset.range(1).flat_map(rows)
    return gather_rows(examples, task_ids, order, len(parts[0][0]), epoch.assign)
