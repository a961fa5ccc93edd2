"""Keras's loggers in a training of several fits: their epochs and batches go on over the tasks."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras

from nccl_tf.whole_files import replaced

_LOGGERS = (
    keras.callbacks.CSVLogger, keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard,
)  # fmt: skip
_VERBS = ("on_epoch_begin", "on_epoch_end")


@contextlib.contextmanager
def counting_on(
    callbacks: Sequence[keras.callbacks.Callback], epochs: int, batches: int, begins: bool
) -> Iterator[None]:
    """Let Keras's loggers take the fit in the body for the rest of one training.

    By themselves they count from 0 in every fit, so that each writes over what the last one wrote.

    Args:
        callbacks: Of the fit; those that are no loggers are left alone.
        epochs: Finished before the first epoch that the fit calls 0.
        batches: Finished before the fit.
        begins: Whether the training begins with this fit.
    """
    loggers = [each for each in callbacks if isinstance(each, _LOGGERS)]
    with contextlib.ExitStack() as stack:
        for logger in loggers:
            for verb in _VERBS:
                shifted = functools.partial(_later, getattr(logger, verb), epochs)
                stack.enter_context(_replaced(logger, verb, shifted))
            if isinstance(logger, keras.callbacks.CSVLogger) and not begins:
                stack.enter_context(_replaced(logger, "append", True))
            if isinstance(logger, keras.callbacks.TensorBoard):
                begin = functools.partial(_count_batches, logger, logger.on_train_begin, batches)
                stack.enter_context(_replaced(logger, "on_train_begin", begin))
        yield


def forget_epochs(callbacks: Sequence[keras.callbacks.Callback], epochs: int) -> None:
    """Remove the rows of a `CSVLogger` from an epoch on, which is to be trained again.

    A file that the user appends to may hold other trainings, and is left alone.

    Args:
        callbacks: Of a training that resumes.
        epochs: Finished before.
    """
    for logger in callbacks:
        if not isinstance(logger, keras.callbacks.CSVLogger) or logger.append:
            continue
        path = Path(logger.filename)
        if not path.exists():
            continue
        # As bytes: Keras writes in the encoding and with the ends of lines of the system.
        header, *rows = path.read_bytes().splitlines(keepends=True) or [b""]
        numbers = [row.partition(logger.sep.encode())[0] for row in rows]
        kept = [
            row for row, number in zip(rows, numbers, strict=True)
            if number.isdigit() and int(number) < epochs and row.endswith(b"\n")
        ]  # fmt: skip
        with replaced(path) as temporary:
            temporary.write_bytes(b"".join([header, *kept]))


def _later(verb: Callable[..., None], epochs: int, epoch: int, logs: Any = None) -> None:
    verb(epoch + epochs, logs)


def _count_batches(
    board: Any, on_train_begin: Callable[..., None], batches: int, logs: Any = None
) -> None:
    on_train_begin(logs)
    board._global_train_batch = batches  # Keras has set it to 0.


@contextlib.contextmanager
def _replaced(logger: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object an attribute of its own while the body runs."""
    before = vars(logger).get(name)
    setattr(logger, name, value)
    try:
        yield
    finally:
        delattr(logger, name) if before is None else setattr(logger, name, before)
