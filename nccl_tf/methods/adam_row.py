"""Adam for a row of weights, as a pure function (CN-DPM, Lee et al., 2020)."""

from typing import NamedTuple

import tensorflow as tf

GRADIENT_BOUND = 0.5
"""No entry of a gradient is larger."""
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


class AdamRow(NamedTuple):
    """The weights of a part of one expert and the state of Adam for them.

    Attributes:
        weights: [size].
        first_moment: [size].
        second_moment: [size].
        steps: int32 scalar, updates so far.
    """

    weights: tf.Tensor
    first_moment: tf.Tensor
    second_moment: tf.Tensor
    steps: tf.Tensor

    def updated(self, gradient: tf.Tensor, rate: tf.Tensor | float) -> "AdamRow":
        """After one update of Adam (Kingma and Ba, 2015) with the gradient's entries bounded.

        A gradient that is not finite changes nothing.
        """
        finite = tf.reduce_all(tf.math.is_finite(gradient))
        gradient = tf.clip_by_value(gradient, -GRADIENT_BOUND, GRADIENT_BOUND)
        steps = self.steps + 1
        first = _BETA1 * self.first_moment + (1 - _BETA1) * gradient
        second = _BETA2 * self.second_moment + (1 - _BETA2) * tf.square(gradient)
        power = tf.cast(steps, gradient.dtype)
        size = tf.sqrt(second / (1 - tf.pow(tf.constant(_BETA2, gradient.dtype), power)))
        mean = first / (1 - tf.pow(tf.constant(_BETA1, gradient.dtype), power))
        weights = self.weights - tf.cast(rate, gradient.dtype) * mean / (size + _EPSILON)
        after = AdamRow(weights, first, second, steps)
        return AdamRow(*(tf.where(finite, new, old) for new, old in zip(after, self, strict=True)))
