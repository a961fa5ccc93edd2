"""How `fit` takes many steps in one call of the graph: stacks of batches, and their numbers."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import BatchStack, class_labels, class_numbers
from nccl_tf.errors import UserError
from nccl_tf.learner.fitting.hints import hint_of_scale
from nccl_tf.networks.inspection import has_convolutions
from nccl_tf.streams.batches import without_autotuning

DENSE_STEPS, CONVOLUTION_STEPS = 200, 50
"""Steps in one call, where the user names no number.

A call costs as much as some six steps of a small dense network, and what waits for its end, such as
a signal or a checkpoint, should not wait long.
"""

_FREQUENCIES = ("update_freq", "log_freq", "save_freq")
"""Attributes of callbacks, Keras's and those of W&B, that name a number of batches."""


def fast_steps(network: keras.Model) -> int:
    """A number of steps in one call that is fast and not long."""
    return CONVOLUTION_STEPS if has_convolutions(network, frozen=True) else DENSE_STEPS


def steps_per_call(most: int, periods: Iterable[int | None]) -> int:
    """The largest number of steps up to `most` that divides every period.

    Args:
        most: 1 or more.
        periods: Numbers of steps after which a call has to end, such as `steps_per_epoch` and the
            frequency of a callback; None for no such number.
    """
    known = [period for period in periods if period]
    return max(k for k in range(1, most + 1) if all(period % k == 0 for period in known))


def callback_periods(callbacks: Iterable[Any]) -> list[int]:
    """The numbers of batches after which callbacks want to be called."""
    periods = [getattr(callback, name, None) for callback in callbacks for name in _FREQUENCIES]
    return [period for period in periods if isinstance(period, int) and period > 0]


def listed(callbacks: Any) -> list[Any]:
    """What `fit` takes as callbacks, as a list: None, a callback, several, or a CallbackList."""
    callbacks = getattr(callbacks, "callbacks", callbacks) or []
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


def as_dataset(
    x: Any, y: Any, sample_weight: Any, batch_size: int | None, shuffle: bool
) -> tf.data.Dataset | None:
    """The batches that `keras.Model.fit` would make of its data; None for data left to Keras.

    Args:
        x: A dataset of batches, or arrays [n, ...], in dictionaries and sequences too.
        y: Labels [n, ...]; None with a dataset.
        sample_weight: Weights [n] or None.
        batch_size: Examples in a batch; None for 32.
        shuffle: Whether arrays are shuffled again in every epoch.
    """
    if isinstance(x, tf.data.Dataset):
        # With labels or weights beside it, Keras says what is wrong.
        return x if y is None and sample_weight is None else None
    x = _as_tuples(x)
    parts = (x, y) if sample_weight is None else (x, y, sample_weight)
    arrays = tf.nest.flatten(parts)
    if not all(isinstance(array, (np.ndarray, tf.Tensor)) and array.ndim for array in arrays):
        return None
    count, size = len(arrays[0]), batch_size or 32
    if not count or any(len(array) != count for array in arrays):
        return None
    tensors = tf.nest.map_structure(_as_tensor, parts)
    order = without_autotuning(tf.data.Dataset.range(count))
    if shuffle:
        order = order.shuffle(count, reshuffle_each_iteration=True)
    batches = order.batch(size, drop_remainder=count % size == 0)

    @tf.autograph.experimental.do_not_convert
    def gather(rows: tf.Tensor) -> Any:
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), tensors)

    return batches.map(gather)


def _as_tuples(x: Any) -> Any:
    """Inputs with tuples for lists, which tf.data would take for one array."""
    if isinstance(x, dict):
        return {name: _as_tuples(part) for name, part in x.items()}
    return tuple(map(_as_tuples, x)) if isinstance(x, (list, tuple)) else x


def _as_tensor(array: Any) -> tf.Tensor:
    # As Keras does: float64 arrays, NumPy's default, are taken for floats of no chosen precision.
    is_float = isinstance(array, np.ndarray) and array.dtype == np.float64
    return tf.convert_to_tensor(array, keras.config.floatx() if is_float else None)


def _of_any_length(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def without_none(data: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parts of a batch `(x, labels, weights)` that are there."""
    return tuple(_as_tuples(part) for part in data if part is not None)


def weigh_classes(dataset: tf.data.Dataset, class_weight: Mapping[int, float]) -> tf.data.Dataset:
    """Multiply the weights of examples by those of their classes.

    Args:
        dataset: Of batches `(x, labels)` or `(x, labels, weights)`; labels of class numbers or of
            one-hot rows.
        class_weight: Factor by class number; a class that is not named has 1.

    Raises:
        UserError: The labels are floats.
    """
    spec = dataset.element_spec[1]
    if spec.dtype.is_floating and (spec.shape.rank != 2 or spec.shape[1] == 1):
        raise UserError(
            f"received class_weight with {spec.dtype.name} labels, which name no class: give "
            "sample_weight instead, or integer labels"
        )
    table = np.ones(1 + max(class_weight), np.float32)
    for label, factor in class_weight.items():
        table[label] = factor

    @tf.autograph.experimental.do_not_convert
    def weigh(x: Any, labels: tf.Tensor, weights: tf.Tensor | None = None) -> tuple[Any, ...]:
        one_hot = labels.shape.rank == 2 and labels.shape[1] != 1
        index = class_numbers(labels) if one_hot else class_labels(labels)
        known = (index >= 0) & (index < len(table))
        factors = tf.where(known, tf.gather(table, tf.where(known, index, 0)), 1.0)
        return x, labels, factors if weights is None else factors * tf.cast(weights, tf.float32)

    return dataset.map(weigh)


class BatchNumbers(keras.callbacks.CallbackList):
    """Callbacks that get the numbers of batches, where Keras counts the elements of the data.

    Two kinds act only at multiples of a number, which calls of many steps would never meet:
    TensorBoard, which counts how often a batch begins, hears of every batch of a call, and of the
    call's end at the multiple; a callback with `log_freq`, such as W&B's, hears at the end of a
    call how many batches are done.

    Args:
        function: Knows how many batches its last call learned.
        callbacks: The callbacks.
        **params: As for `keras.callbacks.CallbackList`.
    """

    def __init__(self, function: "TrainFunction", callbacks: Any, **params: Any):
        super().__init__(getattr(callbacks, "callbacks", callbacks), add_history=True, **params)
        self._function = function
        self._done = self._done_before = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count from 0 in every epoch, as Keras does."""
        self._done_before, self._done = self._done_before + self._done, 0
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Tell the number of the first batch of a call."""
        super().on_train_batch_begin(self._done, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Tell the number of the last batch of a call."""
        first, self._done = self._done, self._done + self._function.steps
        # A metric of several numbers, such as one for each class, stays as it is.
        logs = {
            name: float(value) if np.ndim(value) == 0 else value
            for name, value in (logs or {}).items()
        }
        for callback in self.callbacks:
            period = getattr(callback, "update_freq", None)
            end = self._done
            if isinstance(callback, keras.callbacks.TensorBoard) and isinstance(period, int):
                total = self._done_before + self._done
                end = max(first + 1, total // period * period - self._done_before)
                for number in range(first + 1, end):
                    callback.on_train_batch_begin(number)
            counts = isinstance(getattr(callback, "log_freq", None), int)
            callback.on_train_batch_end(self._done if counts else self._done - 1, logs)
            for number in range(end, self._done):
                callback.on_train_batch_begin(number)


class TrainFunction:
    """Learns one element of Keras's iterator in one call of the graph: a batch or a stack of them.

    Args:
        learner: A learner, compiled for one device.

    Attributes:
        steps: Batches that the last call learned.
    """

    def __init__(self, learner: Any):
        self._learner = learner
        self._graphs: dict[Any, Callable[[Any], dict[str, tf.Tensor]]] = {}
        self.steps = 1
        self._has_begun = False

    def forget_graphs(self) -> None:
        """Trace again what the next call needs."""
        self._graphs.clear()

    def __call__(self, iterator: Any) -> dict[str, tf.Tensor]:
        """Learn the next element and return the metrics' results.

        Raises:
            StopIteration: The iterator is at its end.
        """
        element = next(iterator)
        spec = getattr(iterator, "element_spec", None)
        if spec is None:
            # `train_on_batch` passes a generator of one batch.
            element = tf.nest.map_structure(_as_tensor, without_none(element))
            spec = tf.nest.map_structure(_of_any_length, element)
        self._learner.check_element(element)
        is_stack = isinstance(element, BatchStack)
        if not self._has_begun:
            hint_of_scale(self._learner, element)
            self._learner.see_first(lambda: element.batch(0) if is_stack else element)
            self._has_begun = True
        self.steps = int(element.sizes.shape[0]) if is_stack else 1
        return self._take(element, spec)

    def _take(self, element: Any, spec: Any) -> dict[str, tf.Tensor]:
        """Learn an element, of which its specification says what it shares with the next ones."""
        is_stack = isinstance(element, BatchStack)
        prefetch = is_stack and self._learner.can_prefetch_replay(element)
        if self._learner.run_eagerly:
            return self._learn(prefetch, element)
        key = prefetch, str(spec)
        if key not in self._graphs:
            self._graphs[key] = tf.function(
                functools.partial(self._learn, prefetch), input_signature=[spec], autograph=False
            )
        return self._graphs[key](element)

    def _learn(self, prefetch: bool, element: Any) -> dict[str, tf.Tensor]:
        if isinstance(element, BatchStack):
            self._learner.train_stack(element, prefetch)
        else:
            self._learner.train_step(element)
        return self._learner.get_metrics_result()
