"""Rows of variables read and written in place, and bytes packed into integers."""

import math

import keras
import numpy as np
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


_BYTES = 4


def pack_bytes(images: tf.Tensor) -> tf.Tensor:
    """uint8 [n, ...] -> int32 [n, words], four bytes a word."""
    size = math.prod(images.shape[1:])
    flat = tf.reshape(images, [-1, size])
    padded = tf.pad(flat, [[0, 0], [0, -size % _BYTES]])
    return tf.bitcast(tf.reshape(padded, [-1, count_words(images.shape[1:]), _BYTES]), tf.int32)


def unpack_bytes(numbers: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """int32 [n, words] -> uint8 [n, *shape]."""
    size = math.prod(shape)
    flat = tf.reshape(tf.bitcast(numbers, tf.uint8), [-1, _BYTES * count_words(shape)])
    return tf.reshape(flat[:, :size], [-1, *shape])


def count_words(shape: tuple[int, ...]) -> int:
    """Words that an image takes."""
    return -(-math.prod(shape) // _BYTES)


def needs_packing(dtype: str) -> bool:
    """Whether variables of a dtype have to be packed: of bytes, in the scope of several workers."""
    strategy = tf.distribute.get_strategy()
    workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return workers and np.dtype(dtype) == np.uint8
