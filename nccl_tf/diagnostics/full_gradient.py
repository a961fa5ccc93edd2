"""Loss and gradient over many examples at the current weights, without any side effect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.keras_private import graph
from nccl_tf.streams.arrays import Examples
from nccl_tf.theory.overfitting import Vector
from nccl_tf.variables import values_of

_GRADIENT_CHUNK, _LOSS_CHUNK = 200, 1000
"""Examples in one call of the graph; a gradient holds every layer's activations."""


@dataclass(frozen=True)
class LossSum:
    """The sum of losses over examples, of its gradient, and how many examples they are.

    Attributes:
        loss: Sum of the losses.
        gradient: Sum of the gradients by all trainable variables, flat [d].
        count: Number of examples.
    """

    loss: float
    gradient: Vector
    count: int

    def __add__(self, other: "LossSum") -> "LossSum":
        return LossSum(
            self.loss + other.loss, self.gradient + other.gradient, self.count + other.count
        )

    @property
    def mean_loss(self) -> float:
        """Mean loss over the examples."""
        return self.loss / self.count

    @property
    def mean_gradient(self) -> Vector:
        """Gradient of the mean loss, [d]."""
        return self.gradient / self.count


NOTHING = LossSum(0.0, np.zeros(()), 0)


class FullGradient:
    """The sum of losses over examples, and its gradient by some variables.

    Args:
        variables: Those that are trained.
        losses: From a batch to the loss of each example, [n], which depends on the variables.
        inputs: Shape and dtype of the inputs, the number of them left open.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        losses: Callable[[Batch], tf.Tensor],
        inputs: tf.TensorSpec,
    ):
        self._variables, self._losses_of = list(variables), losses
        numbers = tf.TensorSpec((None,), tf.int32)
        weights = [tf.TensorSpec(v.shape, v.dtype) for v in variables]
        self._sums = _graph(self._sums_of, inputs, numbers, numbers)
        self._losses = _graph(self._sum, inputs, numbers, numbers)
        self._losses_at = _graph(self._sum_at, inputs, numbers, numbers, weights)

    def sums(self, examples: Examples, tasks: int | npt.NDArray[np.integer]) -> LossSum:
        """Sums over examples of one task, or each of the task named in integers [n]."""
        total = NOTHING
        for batch in _chunks(examples, tasks, _GRADIENT_CHUNK):
            loss, gradient = self._sums(*batch)
            total += LossSum(float(loss), gradient.numpy().astype(np.float64), len(batch[1]))
        return total

    def loss(self, examples: Examples, task_id: int) -> float:
        """Sum of the losses over examples of one task."""
        return sum(float(self._losses(*b)) for b in _chunks(examples, task_id, _LOSS_CHUNK))

    def loss_after(self, step: Vector, examples: Examples, task_id: int) -> float:
        """Sum of the losses at weights that are a step [d] away."""
        weights = values_of(self._variables)
        cuts = np.cumsum([int(np.prod(w.shape)) for w in weights])[:-1]
        there = [
            w + tf.constant(part.reshape(w.shape), w.dtype)
            for w, part in zip(weights, np.split(step, cuts), strict=True)
        ]
        batches = _chunks(examples, task_id, _LOSS_CHUNK)
        return sum(float(self._losses_at(*batch, there)) for batch in batches)

    def _sums_of(
        self, inputs: tf.Tensor, labels: tf.Tensor, tasks: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        variables = [v.value for v in self._variables]
        with tf.GradientTape() as tape:
            loss = self._sum(inputs, labels, tasks)
        gradients = tape.gradient(
            loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return loss, tf.concat([tf.reshape(g, [-1]) for g in gradients], 0)

    def _sum_at(
        self, inputs: tf.Tensor, labels: tf.Tensor, tasks: tf.Tensor, weights: list[tf.Tensor]
    ) -> tf.Tensor:
        pairs = zip(self._variables, weights, strict=True)
        with keras.StatelessScope(state_mapping=list(pairs)):
            return self._sum(inputs, labels, tasks)

    def _sum(self, inputs: tf.Tensor, labels: tf.Tensor, tasks: tf.Tensor) -> tf.Tensor:
        batch = Batch(inputs, labels, tasks, tf.ones(tf.shape(labels)))
        return tf.reduce_sum(self._losses_of(batch))


def _graph(function: Callable[..., Any], *signature: Any) -> Any:
    return graph(function, input_signature=signature)


def _chunks(
    examples: Examples, tasks: int | npt.NDArray[np.integer], size: int
) -> Sequence[tuple[np.ndarray, ...]]:
    labels = np.asarray(examples.labels, np.int32)
    tasks = np.broadcast_to(np.asarray(tasks, np.int32), labels.shape)
    cuts = range(0, len(labels), size)
    return [tuple(a[i : i + size] for a in (examples.inputs, labels, tasks)) for i in cuts]
