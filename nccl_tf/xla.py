"""Whether what is being traced becomes one program of XLA, where other operations are fast."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

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
