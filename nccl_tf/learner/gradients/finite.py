"""Gradients outside of a training step, which no skipped step protects from float16's overflow."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from nccl_tf.learner.gradients.dense_chain import gradient_size

LARGEST_SCALE = 2.0**10
"""The loss of one example is not divided by a batch size, so it needs less than a step's scale."""


def finite_gradients(
    learner: Any, loss_of: Callable[[], tf.Tensor]
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """A loss and its gradients by the trainable variables, at a scale that overflows none of them.

    A training step that overflows under mixed_float16 is skipped, and the next has half the scale.
    What is measured beside the steps has no next time: the scale is halved here, down to 1.

    Args:
        learner: Gives loss scale and trainable variables.
        loss_of: Gives the loss, a scalar of float32 or more.

    Returns:
        A tensor per variable, with the scale undone, and the loss.
    """

    def at(scale: tf.Tensor | None) -> tuple[list[tf.Tensor], tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = loss_of()
            scaled = loss if scale is None else loss * tf.cast(scale, loss.dtype)
        return learner.gradients(tape, scaled, scale=scale), loss

    largest = learner.loss_scale()
    if largest is None:
        return at(None)

    def overflows(scale: tf.Tensor, found: tuple[list[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        return (scale > 1.0) & ~tf.math.is_finite(gradient_size(found[0]))

    def halve(scale: tf.Tensor, _: Any) -> tuple[tf.Tensor, tuple[list[tf.Tensor], tf.Tensor]]:
        return scale / 2.0, at(scale / 2.0)

    first = tf.minimum(tf.cast(largest, tf.float32), LARGEST_SCALE)
    return tf.while_loop(overflows, halve, (first, at(first)), parallel_iterations=1)[1]
