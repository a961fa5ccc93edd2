"""Rows written into a tensor, which LiteRT does for whole tensors alone."""

import numpy as np
import tensorflow as tf


def with_rows(value: tf.Tensor, indices: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """A tensor with some rows replaced; of equal indices the last row is taken.

    One gather of all rows, whatever their dtype: the converter's scatter adds rows up.

    Args:
        value: [size, ...].
        indices: int64 or int32 [n], below size.
        rows: [n, ...].
    """
    size, count = value.shape[0], rows.shape[0]
    hits = _hits(indices, size)
    number = tf.constant(np.arange(1, count + 1), tf.int32)
    last = tf.reduce_max(tf.where(hits, number[None, :], 0), axis=1)
    own = tf.constant(np.arange(size), tf.int32)
    return tf.gather(tf.concat([value, rows], 0), tf.where(last > 0, last + (size - 1), own))


def with_sums(value: tf.Tensor, indices: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """A tensor with rows added to some; of equal indices all are added.

    Args:
        value: [size, ...].
        indices: int64 or int32 [n], below size.
        rows: [n, ...].
    """
    hits = tf.cast(_hits(indices, value.shape[0]), value.dtype)
    hits = tf.reshape(hits, [*hits.shape, *[1] * (value.shape.rank - 1)])
    return value + tf.reduce_sum(hits * rows[None, ...], axis=1)


def segment_sums(rows: tf.Tensor, segments: tf.Tensor, count: int) -> tf.Tensor:
    """Sums of the rows of each segment: [count, ...].

    Args:
        rows: [n, ...].
        segments: int64 or int32 [n].
        count: Number of segments.
    """
    flat = tf.reshape(rows, [rows.shape[0], -1])
    sums = tf.matmul(tf.cast(_hits(segments, count), rows.dtype), flat)
    return tf.reshape(sums, [count, *rows.shape[1:]])


def _hits(indices: tf.Tensor, size: int) -> tf.Tensor:
    """bool [size, n]: whether an index is that of a row."""
    numbers = tf.constant(np.arange(size), tf.int32)
    return tf.equal(tf.cast(indices, tf.int32)[None, :], numbers[:, None])
