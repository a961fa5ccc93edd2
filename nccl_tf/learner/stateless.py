"""Losses, gradients and SGD steps of a learner at any weights, without side effects."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.gradients import loss_scale
from nccl_tf.learner.checks import gradient_size
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Logits
from nccl_tf.variables import values_of

LossOf = Callable[[Logits, Batch], tf.Tensor]
"""The loss of a batch, a scalar: a learner's `stream_loss` or `memory_loss`."""
LARGEST_SCALE = 2.0**10
"""The loss of one example is not divided by a batch size, so it needs less than a step's scale."""


class AtWeights(NamedTuple):
    """A batch's loss, gradient and logits at given weights.

    Attributes:
        gradients: Of the loss with the network's regularisation, one per weight.
        loss: Mean loss over the examples that are not padding, without regularisation.
        logits: Raw and masked.
        state: The new values of the network's non-trainable variables, in order.
    """

    gradients: list[tf.Tensor]
    loss: tf.Tensor
    logits: Logits
    state: list[tf.Tensor]


def virtual_step(learner: Learner, batch: Batch, training: bool) -> list[tf.Tensor]:
    """The weights theta_v = theta - alpha g_J after a plain SGD step on a batch.

    Nothing is touched: neither weights, nor batch-norm statistics, nor the draws of dropout.

    Args:
        learner: Whose network, masks, losses, loss scale and rate they are.
        batch: The stream batch J.
        training: Whether batch normalisation takes the statistics of the batch.

    Returns:
        A tensor per trainable variable of the learner's network, in order.
    """
    weights = values_of(learner.network.trainable_variables)
    gradients = gradient(learner, weights, batch, training).gradients
    return sgd_update(weights, gradients, learner.optimizer.learning_rate)


def gradient(
    learner: Learner,
    weights: list[tf.Tensor],
    batch: Batch,
    training: bool,
    loss_of: LossOf | None = None,
    state: list[tf.Tensor] | None = None,
) -> AtWeights:
    """Gradient, loss and logits of a batch at given weights, with no side effect.

    Args:
        learner: Whose network, masks, losses, loss scale and rate they are.
        weights: A tensor per trainable variable of the network.
        batch: Examples.
        training: Whether batch normalisation takes the statistics of the batch.
        loss_of: None for the learner's `stream_loss`.
        state: The values of the network's non-trainable variables, in order; None for
            those that they have.
    """
    loss_of = loss_of or learner.stream_loss

    def loss_at() -> tuple[tf.Tensor, Any]:
        logits, after, losses = _call(learner, weights, batch, training, state)
        loss = loss_of(logits, batch)
        return tf.add_n([loss, *map(at_least_float32, losses)]), (loss, logits, after)

    gradients, auxiliary = learner.gradient(loss_at, at=weights)
    return AtWeights(gradients, *auxiliary)


def losses(learner: Learner, weights: list[tf.Tensor], batch: Batch, training: bool) -> tf.Tensor:
    """The loss of each example of a memory batch at given weights, [n], with no side effect.

    Args:
        learner: Whose network, masks, losses, loss scale and rate they are.
        weights: A tensor per trainable variable of the network.
        batch: Memory examples.
        training: Whether batch normalisation takes the statistics of the batch.
    """
    return learner.memory_losses(_call(learner, weights, batch, training)[0], batch)


def _call(
    learner: Learner,
    weights: list[tf.Tensor],
    batch: Batch,
    training: bool,
    state: list[tf.Tensor] | None = None,
) -> tuple[Logits, list[tf.Tensor], list[tf.Tensor]]:
    before = values_of(learner.network.non_trainable_variables) if state is None else state
    logits, after, losses = learner.network.stateless_call(
        weights, before, batch.inputs, training=training, return_losses=True
    )
    return Logits(logits, learner.masked(logits, batch)), after, losses


def map_groups(
    learner: Learner, batch: Batch, size: int, take: Callable[[list[tf.Tensor]], Any], form: Any
) -> Any:
    """Map the gradient of each group of a batch; groups of 1 are its examples.

    The gradient is that of the group's mean loss with fixed batch-norm statistics. Only one
    group's gradient is held at a time, so it costs no memory to take few numbers of many
    gradients.

    Args:
        learner: Whose network, masks, losses, loss scale and rate they are.
        batch: Examples; their number is a multiple of `size`.
        size: Examples in a group, those of weight 0 included.
        take: Gets a tensor per trainable variable.
        form: `tf.TensorSpec`s in the structure of the results of `take`.

    Returns:
        The results of `take`, stacked: a first axis of length n/size in front.
    """

    def one(group: Batch) -> Any:
        def loss() -> tf.Tensor:
            return learner.stream_loss(learner.forward(group, training=False), group)

        return take(finite_gradients(learner, loss)[0])

    groups = batch.map(lambda part: tf.reshape(part, [-1, size, *part.shape[1:]]))
    return tf.map_fn(one, groups, fn_output_signature=form, parallel_iterations=1)


def finite_gradient(
    learner: Learner, weights: list[tf.Tensor], batch: Batch, training: bool
) -> list[tf.Tensor]:
    """The gradients of `gradient` at a loss scale that overflows none."""

    def loss() -> tf.Tensor:
        logits, _, losses = _call(learner, weights, batch, training)
        of_batch = learner.stream_loss(logits, batch)
        return tf.add_n([of_batch, *map(at_least_float32, losses)])

    return finite_gradients(learner, loss, weights)[0]


def finite_gradients(
    learner: Learner, loss_of: Callable[[], tf.Tensor], sources: list[tf.Tensor] | None = None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """A loss and its gradients, at a scale that overflows none.

    A training step that overflows under mixed_float16 is skipped, and the next has half the
    scale. A measurement beside the steps has no next time: the scale is halved here, down to 1.

    Args:
        learner: Whose network, masks, losses, loss scale and rate they are.
        loss_of: Gives the loss, a scalar of float32 or more.
        sources: Tensors to differentiate by; None for the trainable variables.

    Returns:
        A tensor per source, with the scale undone, and the loss.
    """

    def at(scale: tf.Tensor | None) -> tuple[list[tf.Tensor], tf.Tensor]:
        def loss() -> tuple[tf.Tensor, tf.Tensor]:
            value = loss_of()
            return value, value

        return learner.gradient(loss, at=sources, scale=scale)

    largest = loss_scale(learner.optimizer)
    if largest is None:
        return at(None)

    def overflows(scale: tf.Tensor, found: tuple[list[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        return (scale > 1.0) & ~tf.math.is_finite(gradient_size(found[0]))

    def halve(scale: tf.Tensor, _: Any) -> tuple[tf.Tensor, tuple[list[tf.Tensor], tf.Tensor]]:
        return scale / 2.0, at(scale / 2.0)

    first = tf.minimum(tf.cast(largest, tf.float32), LARGEST_SCALE)
    return tf.while_loop(overflows, halve, (first, at(first)), parallel_iterations=1)[1]


def sgd_update(
    weights: list[tf.Tensor], gradients: list[tf.Tensor], rate: tf.Tensor
) -> list[tf.Tensor]:
    """weights - rate gradients, weight by weight: one step of plain SGD."""
    return [w - tf.cast(rate, w.dtype) * g for w, g in zip(weights, gradients, strict=True)]
