"""Rows of a variable read and written in place, whether it is one or a copy on every replica.

Reading a variable whole would make the next write to it copy every row.
"""

import keras
import tensorflow as tf


def read_rows(variable: keras.Variable, indices: tf.Tensor) -> tf.Tensor:
    """The rows at indices (int32 [...]) along the first axis."""
    value = variable.value
    if not isinstance(value, tf.distribute.DistributedValues):
        return value.sparse_read(indices)
    if tf.distribute.in_cross_replica_context():
        return value.values[0].sparse_read(indices)
    return tf.raw_ops.ResourceGather(resource=value.handle, indices=indices, dtype=value.dtype)


def write_rows(variable: keras.Variable, indices: tf.Tensor, rows: tf.Tensor) -> None:
    """Overwrite the rows at indices (int32 [n]); `scatter_nd_update` does not exist on replicas."""
    variable.value.scatter_update(tf.IndexedSlices(rows, indices))


def add_to_rows(variable: keras.Variable, indices: tf.Tensor, rows: tf.Tensor) -> None:
    """Add to the rows at indices (int32 [n])."""
    variable.value.scatter_add(tf.IndexedSlices(rows, indices))
