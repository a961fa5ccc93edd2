"""Losses, gradients and SGD steps at other weights than the network's, without side effects."""

from typing import NamedTuple

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.methods.learner import Learner
from nccl_tf.methods.task_model import example_losses


def virtual_step(learner: Learner, batch: Batch, training: bool) -> list[tf.Tensor]:
    """The weights theta_v = theta - alpha g_J after a plain SGD step on a batch.

    Nothing is touched: neither weights, nor batch-norm statistics, nor the draws of dropout.

    Args:
        learner: Its optimizer gives alpha.
        batch: The stream batch J.
        training: Whether batch normalisation takes the statistics of the batch.

    Returns:
        A tensor per trainable variable of the learner's network, in their order.
    """
    weights = current_weights(learner)
    gradients = gradient_at(learner, weights, batch, training).gradients
    return descended(weights, gradients, learner.optimizer.learning_rate)


class AtWeights(NamedTuple):
    """What a batch gives at some weights.

    Attributes:
        gradients: Of the loss with the network's regularisation, a tensor per weight.
        loss: Mean loss over the examples that are not padding, without regularisation.
        logits: [n, classes], masked.
        state: What the network's non-trainable variables would become, in their order.
    """

    gradients: list[tf.Tensor]
    loss: tf.Tensor
    logits: tf.Tensor
    state: list[tf.Tensor]


def gradient_at(
    learner: Learner, weights: list[tf.Tensor], batch: Batch, training: bool
) -> AtWeights:
    """Gradient, loss and logits of a batch at given weights, with no side effect.

    Args:
        learner: Gives network and masks.
        weights: A tensor per trainable variable of the network.
        batch: Examples.
        training: Whether batch normalisation takes the statistics of the batch.
    """
    with tf.GradientTape() as tape:
        tape.watch(weights)
        logits, state, losses = _call(learner, weights, batch, training)
        loss = learner.mean_loss(logits, batch)
        scaled = learner.scaled(tf.add_n([loss, *losses]))
    return AtWeights(learner.gradients(tape, scaled, weights), loss, logits, state)


def descended(
    weights: list[tf.Tensor], gradients: list[tf.Tensor], rate: tf.Tensor
) -> list[tf.Tensor]:
    """weights - rate gradients, weight by weight: one step of plain SGD."""
    return [w - tf.cast(rate, w.dtype) * g for w, g in zip(weights, gradients, strict=True)]


def current_weights(learner: Learner) -> list[tf.Tensor]:
    """The values of the network's trainable variables, in the form of `virtual_step`."""
    return [tf.convert_to_tensor(v.value) for v in learner.network.trainable_variables]


def losses_at(
    learner: Learner, weights: list[tf.Tensor], batch: Batch, training: bool
) -> tf.Tensor:
    """The loss of each example of a batch at given weights, [n], with no side effect.

    Args:
        learner: Gives network and masks.
        weights: A tensor per trainable variable of the network.
        batch: Examples.
        training: Whether batch normalisation takes the statistics of the batch.
    """
    return example_losses(_call(learner, weights, batch, training)[0], batch)


def _call(
    learner: Learner, weights: list[tf.Tensor], batch: Batch, training: bool
) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
    state = [tf.convert_to_tensor(v.value) for v in learner.network.non_trainable_variables]
    logits, state, losses = learner.network.stateless_call(
        weights, state, batch.images, training=training, return_losses=True
    )
    return learner.masked(logits, batch), state, losses
