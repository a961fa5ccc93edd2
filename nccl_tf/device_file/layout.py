"""The bytes of a device's state: where each variable lies, and whose state it is."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.errors import UserError

FORMAT = 1
"""Version of files and states; another one is refused."""
_MARK = b"ncl"
HEADER_WORDS = 6
"""The mark with the version, three words of the fingerprint, and two sums over what follows."""
_PERIOD = 127


class Part(NamedTuple):
    """Where a variable lies in a state.

    Attributes:
        name: The variable's.
        dtype: Its dtype; a bool takes a byte.
        shape: Its shape.
        offset: Its first byte.
        size: Its number of bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


class Layout:
    """The state of a learner as bytes.

    Args:
        variables: Those of the state, in order.
        subject: What else tells one model from another: names of classes, numbers.
        constants: Variables that the state leaves out and that it fits alone.

    Attributes:
        parts: A `Part` for each variable.
        size: Bytes of a state, its header included.
        fingerprint: Hexadecimal digits, equal for states that may take each other's place.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        subject: Sequence[Any],
        constants: Sequence[keras.Variable],
    ):
        self.variables = list(variables)
        self.parts: list[Part] = []
        offset = 4 * HEADER_WORDS
        for variable in self.variables:
            shape, size = tuple(map(int, variable.shape)), _bytes(variable)
            self.parts.append(Part(variable.path, variable.dtype, shape, offset, size))
            offset += size
        self._filling = -offset % 4
        self.size = offset + self._filling
        forms = [(part.dtype, part.shape) for part in self.parts]
        digest = hashlib.sha256(repr([*subject, *forms]).encode())
        for variable in constants:
            digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
        self.fingerprint = digest.hexdigest()[: 2 * 12]

    @property
    def head(self) -> np.ndarray:
        """int32 [4]: how every state of the layout begins."""
        start = _MARK + bytes([FORMAT]) + bytes.fromhex(self.fingerprint)
        return np.frombuffer(start, np.int32)

    # ---- graph code ----------------------------------------------------------------------------

    def save(self) -> tf.Tensor:
        """uint8 [size]: the current state. Graph code."""
        parts = [_as_bytes(variable.value) for variable in self.variables]
        body = tf.concat([*parts, tf.zeros([self._filling], tf.uint8)], 0)
        words = tf.concat([tf.constant(self.head), _sums(_words(body))], 0)
        return tf.concat([tf.reshape(tf.bitcast(words, tf.uint8), [-1]), body], 0)

    def restore(self, state: tf.Tensor) -> tf.Tensor:
        """bool scalar: whether a state is one of the layout, and was taken. Graph code.

        Args:
            state: uint8 [size].
        """
        words = _words(state)
        is_whole = tf.reduce_all(tf.equal(_sums(words[HEADER_WORDS:]), words[4:HEADER_WORDS]))
        is_own = tf.reduce_all(tf.equal(words[:4], tf.constant(self.head))) & is_whole

        def take() -> tf.Tensor:
            for variable, part in zip(self.variables, self.parts, strict=True):
                flat = state[part.offset : part.offset + part.size]
                variable.value.assign(_of_bytes(flat, part))
            return tf.constant(1)

        return tf.cond(is_own, take, lambda: tf.constant(0)) > 0

    # ---- on the host ---------------------------------------------------------------------------

    def pack(self) -> np.ndarray:
        """As `save`, on the host."""
        arrays = [np.ascontiguousarray(variable.numpy()) for variable in self.variables]
        body = np.frombuffer(
            b"".join([*(a.tobytes() for a in arrays), bytes(self._filling)]), np.uint8
        )
        words = np.concatenate([self.head, _host_sums(body.view(np.int32))])
        return np.concatenate([words.view(np.uint8), body])

    def unpack(self, state: bytes, source: str) -> list[np.ndarray]:
        """The arrays of a state, in the order of the variables.

        Args:
            state: What a device has saved.
            source: Where it comes from, for messages.

        Raises:
            UserError: It is no state, of another version, of another model, or damaged.
        """
        if len(state) < 4 * HEADER_WORDS or state[:3] != _MARK:
            raise UserError(
                f"received {source}, which is no state of a device: write the bytes that the "
                "file's signature `save` returns, all of them"
            )
        if state[3] != FORMAT:
            raise UserError(
                f"received {source}, a state of version {state[3]}, expected version {FORMAT}: "
                "export the learner again, or take the nccl_tf that has exported it"
            )
        found = state[4:16].hex()
        if found != self.fingerprint:
            raise UserError(
                f"received {source}, a state of a model with the fingerprint {found}, expected "
                f"that of this learner, {self.fingerprint}: build the learner as it was when it "
                "was exported, with the same frozen weights"
            )
        if len(state) != self.size:
            raise UserError(
                f"received {source} of {len(state):,} bytes, expected the {self.size:,} of this "
                "learner's state: copy the file again"
            )
        words = np.frombuffer(state, np.int32)
        if not np.array_equal(_host_sums(words[HEADER_WORDS:]), words[4:HEADER_WORDS]):
            raise UserError(
                f"received {source}, which was changed after it was saved: copy it again"
            )
        return [
            np.frombuffer(
                state, part.dtype, part.size // np.dtype(part.dtype).itemsize, part.offset
            )
            .reshape(part.shape)
            .copy()
            for part in self.parts
        ]

    def described(self) -> list[Mapping[str, Any]]:
        """The parts as values of JSON."""
        return [{**part._asdict(), "shape": list(part.shape)} for part in self.parts]


def _bytes(variable: keras.Variable) -> int:
    return int(np.prod(variable.shape)) * tf.as_dtype(variable.dtype).size


def _as_bytes(value: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype == tf.bool:
        tensor = tf.cast(tensor, tf.uint8)
    if tensor.dtype != tf.uint8:
        tensor = tf.bitcast(tensor, tf.uint8)
    return tf.reshape(tensor, [-1])


def _of_bytes(flat: tf.Tensor, part: Part) -> tf.Tensor:
    dtype = tf.as_dtype(part.dtype)
    if dtype in (tf.uint8, tf.bool):
        return tf.cast(tf.reshape(flat, part.shape), dtype)
    if dtype.size > 1:
        flat = tf.reshape(flat, [-1, dtype.size])
    return tf.reshape(tf.bitcast(flat, dtype), part.shape)


def _words(state: tf.Tensor) -> tf.Tensor:
    """uint8 [4 n] as int32 [n]. A state of another length does not fit into the rows."""
    return tf.bitcast(tf.reshape(state, [state.shape[0] // 4, 4]), tf.int32)


def _weights(count: int) -> np.ndarray:
    """int64 [count], which tell places apart and sums of 2^25 words below 2^63."""
    return (np.arange(count) % _PERIOD + 1).astype(np.int64)


def _sums(words: tf.Tensor) -> tf.Tensor:
    """int32 [2]: the low words of a sum and of one by places."""
    wide = tf.cast(words, tf.int64)
    count = words.shape[0]
    rows = -(-count // _PERIOD)
    padded = tf.reshape(tf.pad(wide, [[0, rows * _PERIOD - count]]), [rows, _PERIOD])
    columns = tf.reduce_sum(padded, axis=0)
    placed = tf.reduce_sum(columns * tf.constant(_weights(_PERIOD)))
    return tf.bitcast(tf.stack([tf.reduce_sum(columns), placed]), tf.int32)[:, 0]


def _host_sums(words: np.ndarray) -> np.ndarray:
    wide = words.astype(np.int64)
    sums = np.array([wide.sum(), (wide * _weights(len(wide))).sum()], np.int64)
    return sums.view(np.int32)[::2]
