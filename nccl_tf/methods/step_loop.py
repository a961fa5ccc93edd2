"""Many training steps in one call of the graph."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

DEFAULT_STEPS = 50
"""Steps in one call, where the user names no number: more are no faster, fewer are slower."""


def steps_in_a_call(asked: int | None, steps_per_epoch: int | None) -> int:
    """How many steps one call takes.

    Args:
        asked: What the user named, or None.
        steps_per_epoch: As for `keras.Model.fit`. Keras runs whole calls only, so that without a
            number from the user a divisor of it is taken.
    """
    if asked is not None:
        return asked
    if not steps_per_epoch:
        return DEFAULT_STEPS
    return max(k for k in range(1, DEFAULT_STEPS + 1) if steps_per_epoch % k == 0)


def step_loop(
    train_step: Callable[[Any], Any], results: Callable[[], dict[str, tf.Tensor]], steps: int
) -> Callable[[tf.data.Iterator], dict[str, tf.Tensor]]:
    """What `keras.Model.fit` calls: it takes up to `steps` batches from an iterator.

    Keras's own loop makes the metrics' results in every step, and hands them from step to step as
    optional values; here they are made once, after the last step.

    Args:
        train_step: Learns one batch; graph code.
        results: The metrics' results; graph code.
        steps: Most batches in a call.

    Returns:
        A function of an iterator over batches that returns the results; it raises StopIteration
        where the iterator is at its end.
    """

    @tf.function(reduce_retracing=True, autograph=False)
    def run(iterator: tf.data.Iterator) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        def body(step: tf.Tensor, batch: Any) -> tuple[tf.Tensor, Any]:
            train_step(batch.get_value())
            # A batch that this call does not learn must stay in the iterator.
            more = tf.cond(step + 1 < steps, iterator.get_next_as_optional, lambda: batch)
            return step + 1, more

        done, _ = tf.while_loop(
            lambda step, batch: (step < steps) & batch.has_value(),
            body,
            (tf.constant(0), iterator.get_next_as_optional()),
        )
        return done, results()

    def function(iterator: tf.data.Iterator) -> dict[str, tf.Tensor]:
        done, found = run(iterator)
        if not int(done):
            raise StopIteration
        return found

    return function
