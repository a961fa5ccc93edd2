"""Whether what is being traced becomes one program of XLA, where other operations are fast."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

MOST_ENTRIES = 2**20
"""Of an `Argument` that is held a second time, as a variable."""
_TRACED = ContextVar("nccl_tf_xla", default=False)


@contextmanager
def program() -> Iterator[None]:
    """Trace the body for one program of XLA, which has whole steps in it."""
    token = _TRACED.set(True)
    try:
        yield
    finally:
        _TRACED.reset(token)


def in_program() -> bool:
    """Whether a program of XLA is being traced."""
    return _TRACED.get()


def in_program_of_a_processor() -> bool:
    """Whether one is that runs on a processor."""
    return in_program() and not tf.config.get_visible_devices("GPU")


class Argument:
    """A value that a program of XLA is given when it runs, so that one program serves all values.

    Elsewhere it is a constant of the graph, which costs no operation. So is one of more than
    `MOST_ENTRIES`.

    Args:
        value: An array or a number.
        dtype: Its dtype, bool, int64 or a float.
    """

    def __init__(self, value: Any, dtype: str) -> None:
        self._value = np.asarray(value, dtype)
        # Made here, because a step that creates variables is traced twice.
        is_small = self._value.size <= MOST_ENTRIES
        self._variable = tf.Variable(self._value, trainable=False) if is_small else None

    def read(self) -> tf.Tensor:
        """The value. Graph code."""
        if self._variable is None or not in_program():
            return tf.constant(self._value)
        return self._variable.value()
