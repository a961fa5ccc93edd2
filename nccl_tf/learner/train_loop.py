"""Many training steps in one call of the graph."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.chunks import batch_of, chunks_of
from nccl_tf.learner.step import one_after_another
from nccl_tf.networks.inspection import has_convolutions

DENSE_STEPS, CONVOLUTION_STEPS = 200, 50
"""Steps in one call, where the user names no number.

A call costs as much as some six steps of a small dense network, and what waits for its end, such as
a signal or a checkpoint, should not wait long.
"""


def fast_steps(network: keras.Model) -> int:
    """A number of steps in one call that is fast and not long."""
    return CONVOLUTION_STEPS if has_convolutions(network) else DENSE_STEPS


def whole_calls(steps: int, steps_per_epoch: int | None) -> int:
    """The largest number up to `steps` of which an epoch is whole calls.

    Args:
        steps: 1 or more.
        steps_per_epoch: As for `keras.Model.fit`, which runs whole calls only; None where the data
            end an epoch.
    """
    if not steps_per_epoch:
        return steps
    return max(k for k in range(1, steps + 1) if steps_per_epoch % k == 0)


class StepLoop:
    """What `keras.Model.fit` calls: it learns up to `steps` batches from an iterator.

    Keras's own loop makes the metrics' results in every step, and hands them from step to step as
    optional values; here they are made once, after the last step. Data that come in chunks
    (`nccl_tf.chunks`) are read a chunk in a call, and its steps measured together.

    Args:
        learner: A learner, compiled for one device.
        steps: Most batches in a call.
    """

    def __init__(self, learner: Any, steps: int):
        self._learner, self._steps = learner, steps
        self._chunks: tf.data.Dataset | None = None
        self._iterators: tuple[Any, Any] = None, None
        self._take_batches = tf.function(self._batches, reduce_retracing=True, autograph=False)
        self._take_chunk: dict[Any, Callable[[Any], dict[str, tf.Tensor]]] = {}

    def feed(self, data: Any) -> None:
        """Say which data the next iterators are of."""
        chunks = chunks_of(data)
        self._chunks = None if chunks is None else chunks(self._steps)
        self._iterators = None, None

    def __call__(self, iterator: tf.data.Iterator) -> dict[str, tf.Tensor]:
        """Learn batches and return the metrics' results.

        Raises:
            StopIteration: The iterator is at its end.
        """
        if self._chunks is None:
            done, found = self._take_batches(iterator)
            if not int(done):
                raise StopIteration
            return found
        # Nothing is taken from `iterator`: that it is another one says that fit begins anew.
        if iterator is not self._iterators[0]:
            self._iterators = iterator, iter(self._chunks)
        chunk = next(self._iterators[1])
        ahead = self._learner.looks_ahead(chunk)
        kind = ahead, *tf.nest.flatten(self._chunks.element_spec)
        if kind not in self._take_chunk:
            self._take_chunk[kind] = tf.function(
                functools.partial(self._chunk, ahead),
                input_signature=[self._chunks.element_spec],
                autograph=False,
            )
        return self._take_chunk[kind](chunk)

    def _batches(self, iterator: tf.data.Iterator) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        def body(step: tf.Tensor, batch: Any) -> tuple[tf.Tensor, Any]:
            self._learner.train_step(batch.get_value())
            # A batch that this call does not learn must stay in the iterator.
            more = tf.cond(step + 1 < self._steps, iterator.get_next_as_optional, lambda: batch)
            return step + 1, more

        done, _ = tf.while_loop(
            lambda step, batch: (step < self._steps) & batch.has_value(),
            body,
            (tf.constant(0), iterator.get_next_as_optional()),
        )
        return done, self._learner.get_metrics_result()

    def _chunk(self, ahead: bool, chunk: Any) -> dict[str, tf.Tensor]:
        _, labels, weights = chunk
        if ahead:
            outcomes = self._learner.take_steps_ahead(chunk)
        else:
            outcomes, _ = one_after_another(
                tf.shape(labels)[0],
                self._learner.outcome_dtypes(),
                lambda i, _: (self._learner.take_step(batch_of(chunk, i)), ()),
            )
        self._learner.measure(labels, weights, outcomes)
        return self._learner.get_metrics_result()
