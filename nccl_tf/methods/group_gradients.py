"""Gradients of several groups of examples at the same weights, one group after the other."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.methods.learner import Learner


def of_groups(
    learner: Learner, batch: Batch, size: int, take: Callable[[list[tf.Tensor]], Any], form: Any
) -> Any:
    """What is made of the gradient of each group of a batch; groups of 1 are its examples.

    The gradient is that of the group's mean loss with fixed batch-norm statistics. Only one group's
    gradient is held at a time, so it costs no memory to take few numbers of many gradients.

    Args:
        learner: Gives network, masks and trainable variables.
        batch: Examples; their number is a multiple of `size`.
        size: Examples in a group, those of weight 0 included.
        take: Gets a tensor per trainable variable.
        form: `tf.TensorSpec`s in the structure of what `take` returns.

    Returns:
        What `take` returned, stacked: a first axis of length n/size in front.
    """

    def one(group: Batch) -> Any:
        with tf.GradientTape() as tape:
            loss = learner.scaled(learner.mean_loss(learner.logits(group, training=False), group))
        return take(learner.gradients(tape, loss))

    groups = Batch(*(tf.reshape(part, [-1, size, *part.shape[1:]]) for part in batch))
    return tf.map_fn(one, groups, fn_output_signature=form, parallel_iterations=1)
