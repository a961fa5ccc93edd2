"""The learning rate of a task in the stable training regime (Mirzadeh et al., NeurIPS 2020)."""

import tensorflow as tf

LEAST_RATE = 5e-5
"""The decay of the learning rate stops here."""


def decayed_rate(rate: tf.Tensor, decay: float, task: tf.Tensor) -> tf.Tensor:
    """max(rate decay^task, 5e-5), or the rate where that is lower.

    Args:
        rate: eta, a scalar.
        decay: gamma.
        task: k, the task's number from 1, an integer scalar.
    """
    factor = tf.constant(decay, rate.dtype) ** tf.cast(task, rate.dtype)
    return tf.maximum(rate * factor, tf.minimum(rate, tf.constant(LEAST_RATE, rate.dtype)))
