"""Images of bytes as whole numbers of 32 bits, which is all that travels between workers."""

import math

import numpy as np
import tensorflow as tf

_BYTES = 4


def packed(images: tf.Tensor) -> tf.Tensor:
    """uint8 [n, ...] -> int32 [n, words], four bytes a word."""
    size = math.prod(images.shape[1:])
    flat = tf.reshape(images, [-1, size])
    padded = tf.pad(flat, [[0, 0], [0, -size % _BYTES]])
    return tf.bitcast(tf.reshape(padded, [-1, words(images.shape[1:]), _BYTES]), tf.int32)


def unpacked(numbers: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """int32 [n, words] -> uint8 [n, *shape]."""
    size = math.prod(shape)
    flat = tf.reshape(tf.bitcast(numbers, tf.uint8), [-1, _BYTES * words(shape)])
    return tf.reshape(flat[:, :size], [-1, *shape])


def words(shape: tuple[int, ...]) -> int:
    """Words that an image takes."""
    return -(-math.prod(shape) // _BYTES)


def packs(dtype: str) -> bool:
    """Whether variables of a dtype have to be packed: of bytes, in the scope of several workers."""
    strategy = tf.distribute.get_strategy()
    workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return workers and np.dtype(dtype) == np.uint8
