"""What callbacks of `fit`, `evaluate` and `predict` hear: what was measured, of real batches."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class MeasuredProgress(keras.callbacks.ProgbarLogger):
    """Keras's progress bar without the values that no step measured, which are NaN."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Show what was measured so far."""
        super().on_train_batch_end(batch, _measured(logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Show what was measured in the epoch."""
        super().on_epoch_end(epoch, _measured(logs))


def _measured(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    # A loss that is NaN says that no step was finite.
    shown = (logs or {}).items()
    return {name: v for name, v in shown if name == "loss" or not np.isnan(v)}


class BatchesOfData(keras.callbacks.CallbackList):
    """Callbacks of `evaluate` and `predict` that hear of no more batches than there are.

    Keras counts whole calls of the graph, and its progress bar grows with that number.

    Args:
        callbacks: The callbacks.
        count: Batches of the data; None where that is not known.
        **params: As for `keras.callbacks.CallbackList`.
    """

    def __init__(self, callbacks: Any, count: int | None, **params: Any):
        super().__init__(callbacks, steps=count, **params)
        self._last = np.inf if count is None else count - 1

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Tell the number of the last batch of a call."""
        super().on_test_batch_end(min(batch, self._last), logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Tell the number of the last batch of a call."""
        super().on_predict_batch_end(min(batch, self._last), logs)


def count_batches(x: Any, batch_size: int | None, steps: int | None) -> int | None:
    """How many batches `evaluate` or `predict` makes of its data; None where it is not known."""
    if steps is not None:
        return steps
    if isinstance(x, tf.data.Dataset):
        count = int(x.cardinality())
        return count if count >= 0 else None
    if isinstance(x, keras.utils.PyDataset):
        return x.num_batches
    first = tf.nest.flatten(x)[0]
    if not isinstance(first, (np.ndarray, tf.Tensor)) or not first.ndim:
        return None
    return -(-len(first) // (batch_size or 32))
