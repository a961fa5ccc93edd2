"""A trace of some steps by TensorFlow's own profiler."""

from pathlib import Path

import keras
import tensorflow as tf

CALL = 2
"""The call of the graph that is traced: the first one builds the graph."""


class StepProfile(keras.callbacks.Callback):
    """Traces one call of the graph of a run, for TensorBoard's profile page.

    A trace costs the traced steps about a third more; it changes no number.

    Args:
        folder: Takes the trace, in `plugins/profile`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._calls = folder, 0

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Begin the trace before its call."""
        self._calls += 1
        if self._calls == CALL:
            tf.profiler.experimental.start(str(self._folder))

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Write the trace after its call."""
        if self._calls == CALL:
            tf.profiler.experimental.stop()
