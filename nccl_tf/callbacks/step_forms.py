"""In which form the theory books a learner's step."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf import step_sizes
from nccl_tf.learner.two_gradients import ReplayGradientLearner
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.step_sizes import StepSizes


def form_of(learner: keras.Model) -> str:
    """The form of a learner's step x+ = x - alpha_H f_I - beta_H g_J.

    Returns:
        "two_gradients" where it forms both gradients itself, "joint" of experience replay, and
        "stream", x+ = x - alpha g_J, of every other method, whatever else it does.
    """
    if isinstance(learner, ReplayGradientLearner):
        return "two_gradients"
    return "joint" if isinstance(learner, ExperienceReplay) else "stream"


def step_sizes_of(
    learner: keras.Model, scalars: tuple[tf.Tensor, ...], examples: tuple[Any, Any]
) -> StepSizes:
    """alpha_H and beta_H of a step.

    Args:
        learner: The learner.
        scalars: Lambda, |f_I|^2, |g_J|^2 and alpha.
        examples: b_I and b_J, the numbers of examples in the batches.
    """
    lambda_, _, _, alpha = scalars
    form = form_of(learner)
    if form == "two_gradients":
        return learner.step_sizes(*scalars)
    one = tf.ones_like(alpha)
    if form == "stream":
        return step_sizes.joint(lambda_, alpha, tf.zeros_like(alpha), one)
    if learner.er_weighting == "sum_of_means":
        return step_sizes.joint(lambda_, alpha, one, one)
    memory, stream = (tf.cast(count, alpha.dtype) for count in examples)
    both = memory + stream
    return step_sizes.joint(lambda_, alpha, memory / both, stream / both)
