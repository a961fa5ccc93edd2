"""The learning rate of a step in the stable training regime (Mirzadeh et al., NeurIPS 2020)."""

import tensorflow as tf

LEAST_RATE = 5e-5
"""The decay of the learning rate by tasks stops here."""


def rate_of_step(
    rate: tf.Tensor, decay: float, every: int | None, task: tf.Tensor, updates: tf.Tensor
) -> tf.Tensor:
    """The decayed rate of the next step.

    Args:
        rate: eta, a scalar.
        decay: gamma.
        every: Updates between two decays; None for a decay by tasks.
        task: k, the task's number from 1, an integer scalar.
        updates: Updates so far, an integer scalar.
    """
    if every is None:
        return decayed_rate(rate, decay, task)
    return rate_after_steps(rate, decay, every, updates)


def decayed_rate(rate: tf.Tensor, decay: float, task: tf.Tensor) -> tf.Tensor:
    """max(rate decay^task, 5e-5), or the rate where that is lower.

    Args:
        rate: eta, a scalar.
        decay: gamma.
        task: k, the task's number from 1, an integer scalar.
    """
    factor = tf.constant(decay, rate.dtype) ** tf.cast(task, rate.dtype)
    return tf.maximum(rate * factor, tf.minimum(rate, tf.constant(LEAST_RATE, rate.dtype)))


def rate_after_steps(rate: tf.Tensor, decay: float, every: int, updates: tf.Tensor) -> tf.Tensor:
    """rate decay^floor(updates / every): TF1's `exponential_decay(..., staircase=True)`.

    The authors' A-GEM and ER have it with decay 0.65 and 3,100 steps, about two of their tasks
    (github.com/imirzadeh/stable-continual-learning, `learning_rate` in
    external_libs/continual_learning_algorithms/model/model.py, replicate_mnist_stable.sh).

    Args:
        rate: eta, a scalar.
        decay: gamma.
        every: Updates between two decays.
        updates: Updates so far, an integer scalar.
    """
    times = tf.cast(updates // tf.cast(every, updates.dtype), rate.dtype)
    return rate * tf.constant(decay, rate.dtype) ** times
