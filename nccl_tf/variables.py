"""Reading and writing variables, whole or by rows in place, and packing bytes into integers."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from nccl_tf.keras_private import give_new_shape

_BYTES_PER_WORD = 8


def zeros(name: str, shape: tuple[int, ...], dtype: str) -> keras.Variable:
    """A variable that counts or sums in the graph, and keeps its dtype under every policy."""
    return keras.Variable(
        np.zeros(shape, dtype), name=name, dtype=dtype, trainable=False, autocast=False
    )


def bytes_of(variables: Iterable[keras.Variable]) -> int:
    """The bytes that variables take together; of text those of its characters now."""
    return sum(map(_bytes, variables))


def _bytes(variable: keras.Variable) -> int:
    if variable.dtype == "string":
        return sum(map(len, variable.numpy().ravel()))
    return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size


def values_of(variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
    """The values of variables as tensors, in order."""
    return [tf.convert_to_tensor(variable.value) for variable in variables]


def assign_all(variables: Sequence[keras.Variable], values: Sequence[Any]) -> None:
    """Give each variable its value, of its shape and dtype."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def assigned_by(
    call: Callable[..., Any], variables: Sequence[keras.Variable], *args: Any
) -> list[keras.Variable]:
    """Those among variables that a call would assign, found by tracing it and not running it.

    Args:
        call: A function that writes by `keras.Variable.assign`, as Keras's layers do.
        variables: Variables to look at.
        *args: Structures of tensors that the call takes; their values do not matter.
    """
    scope = keras.StatelessScope(collect_losses=True)

    def trace(*args: Any) -> None:
        with scope:
            call(*args)

    tf.function(trace, autograph=False).get_concrete_function(*args)
    return [v for v in variables if scope.get_current_value(v) is not None]


def read_rows(variable: keras.Variable, indices: tf.Tensor) -> tf.Tensor:
    """Read rows of a variable.

    Args:
        variable: [rows, ...].
        indices: int64 [...], along the first axis.

    Returns:
        [*indices.shape, ...], in the variable's dtype.
    """
    value = variable.value
    if not isinstance(value, tf.distribute.DistributedValues):
        return value.sparse_read(indices)
    if tf.distribute.in_cross_replica_context():
        return value.values[0].sparse_read(indices)
    return tf.raw_ops.ResourceGather(resource=value.handle, indices=indices, dtype=value.dtype)


def write_rows(variable: keras.Variable, indices: tf.Tensor, rows: tf.Tensor) -> None:
    """Overwrite rows of a variable.

    Args:
        variable: [rows, ...].
        indices: int64 [n]; of equal indices any one is written.
        rows: [n, ...], in the variable's dtype.
    """
    # Variables on replicas have no `scatter_nd_update`.
    variable.value.scatter_update(tf.IndexedSlices(rows, indices))


def add_to_rows(variable: keras.Variable, indices: tf.Tensor, rows: tf.Tensor) -> None:
    """Add to rows of a variable.

    Args:
        variable: [rows, ...].
        indices: int64 [n]; of equal indices all are added.
        rows: [n, ...], in the variable's dtype.
    """
    variable.value.scatter_add(tf.IndexedSlices(rows, indices))


def resize(
    variable: keras.Variable, shape: Sequence[Any], fill: ArrayLike = 0, spare: int = 0
) -> None:
    """Give a variable another shape in place, so that objects that hold it keep it.

    A graph traced before keeps using the old variable, and must be discarded.

    Args:
        variable: The variable, on one device.
        shape: Sides, none shorter than before.
        fill: What the new entries hold: a number, or an array of the new shape. Those of byte
            strings are empty.
        spare: Rows at the end of the first axis that stand for nothing, and are not kept.
    """
    old = variable.numpy()
    old = old[: len(old) - spare] if spare else old
    fill = b"" if old.dtype == object else fill
    value = np.broadcast_to(np.asarray(fill, old.dtype), tuple(map(int, shape))).copy()
    value[tuple(slice(0, side) for side in old.shape)] = old
    give_new_shape(variable, value)


def blank_like(array: np.ndarray) -> np.ndarray:
    """An array of the same shape and dtype that holds nothing: zeros, or empty byte strings."""
    return np.full_like(array, b"" if array.dtype == object else 0)


def pack_bytes(inputs: tf.Tensor) -> tf.Tensor:
    """Pack bytes into words: uint8 [n, *shape] -> int64 [n, words], eight bytes a word."""
    shape = inputs.shape[1:]
    size = math.prod(shape)
    padded = tf.pad(tf.reshape(inputs, [-1, size]), [[0, 0], [0, -size % _BYTES_PER_WORD]])
    return tf.bitcast(tf.reshape(padded, [-1, count_words(shape), _BYTES_PER_WORD]), tf.int64)


def unpack_bytes(packed: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """Invert `pack_bytes`: int64 [n, words] -> uint8 [n, *shape]."""
    size = math.prod(shape)
    flat = tf.reshape(tf.bitcast(packed, tf.uint8), [-1, _BYTES_PER_WORD * count_words(shape)])
    return tf.reshape(flat[:, :size], [-1, *shape])


def count_words(shape: tuple[int, ...]) -> int:
    """Number of words that one example of a shape takes."""
    return -(-math.prod(shape) // _BYTES_PER_WORD)


def needs_packing(dtype: str) -> bool:
    """Whether a variable of this dtype has to be packed: uint8 under multi-worker training."""
    strategy = tf.distribute.get_strategy()
    workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return workers and np.dtype(dtype) == np.uint8
