"""The learning rate of a task in the stable training regime (Mirzadeh et al., NeurIPS 2020)."""

import math
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import RATE_DECAY, RATE_DECAY_STEPS
from nccl_tf.errors import UserError
from nccl_tf.learner.options.refused import check_refused

LEAST_RATE = 5e-5
"""The decay of the learning rate stops here."""


def checked_decay(
    learner: Any, decay: float | None, every: int | None
) -> tuple[float | None, int | None]:
    """The arguments `rate_decay` and `rate_decay_steps` of a learner.

    Raises:
        UserError: One is out of range, the second comes without the first, or the method has no
            use for them.
    """
    if decay is not None:
        check_refused(learner, "rate_decay", decay)
    if decay is None and every is not None:
        raise UserError(
            f"received rate_decay_steps={every} without rate_decay, the factor by which the rate "
            "falls: pass rate_decay too, or leave rate_decay_steps out"
        )
    decay = None if decay is None else float(RATE_DECAY.check(decay))
    return decay, RATE_DECAY_STEPS.check(every)


def check_has_a_rate(learner: Any) -> None:
    """Check that a learner that decays its rate has a rate, and no schedule.

    Raises:
        UserError: It has a schedule.
    """
    if learner.rate_decay and not isinstance(learner.optimizer.learning_rate, keras.Variable):
        raise UserError(
            "received an optimizer with a learning rate schedule and a rate_decay, which decays "
            "the rate itself: give a number as learning rate, or leave rate_decay out"
        )


def check_rate_is_finite(optimizer: Any) -> None:
    """Check the learning rate of the coming step.

    Raises:
        UserError: It is infinite or NaN.
    """
    rate = float(tf.convert_to_tensor(optimizer.learning_rate))
    if not math.isfinite(rate):
        raise UserError(
            f"received the learning rate {rate:g}, which makes every weight infinite or NaN: "
            "expected a finite number, such as keras.optimizers.SGD(0.1)"
        )


def rate_of_step(learner: Any, rate: tf.Tensor) -> tf.Tensor:
    """The rate of a learner's coming step.

    Args:
        learner: With a `rate_decay`.
        rate: eta, a scalar.
    """
    if learner.rate_decay_steps is None:
        return decayed_rate(rate, learner.rate_decay, learner.tasks_ended.value + 1)
    updates = getattr(learner.optimizer, "inner_optimizer", learner.optimizer).iterations.value
    return rate_after_steps(rate, learner.rate_decay, learner.rate_decay_steps, updates)


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
