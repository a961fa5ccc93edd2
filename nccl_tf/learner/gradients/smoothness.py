"""Estimates of the smoothness constant L of the memory loss while a learner trains."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

import nccl_tf.gradients as gradients
from nccl_tf.batch import Batch
from nccl_tf.learner.gradients.functional import current_weights, gradient_at
from nccl_tf.rng import apart

Weights = Sequence[tf.Tensor]

SECANT_EVERY, POWER_EVERY = 10, 50
"""Steps with replay from one estimate to the next."""
POWER_ITERATIONS = 10
LEAST = 1e-2
MOST_TIMES_ALPHA = 0.9
"""L is kept at or below this over alpha, so that beta* stays positive."""
_SECANT_DECAY, _POWER_WEIGHT = 0.99, 0.5
_SHORTEST = 1e-12


def secant(
    gradients_before: Weights, gradients_after: Weights, before: Weights, after: Weights
) -> tf.Tensor:
    """|grad f(x+) - grad f(x)| / |x+ - x|: a lower bound of L, and L itself where f is L/2 |x|^2.

    Both gradients have to be of one batch; those of two batches measure sampling noise.

    Args:
        gradients_before: grad f(x), a tensor per variable.
        gradients_after: grad f(x+).
        before: x.
        after: x+.

    Returns:
        A scalar; nan where |x+ - x| is below 1e-12.
    """
    change = tf.sqrt(gradients.squared_norm(_difference(gradients_after, gradients_before)))
    length = tf.sqrt(gradients.squared_norm(_difference(after, before)))
    moved = length >= _SHORTEST
    nan = tf.constant(float("nan"), length.dtype)
    return tf.where(moved, change / tf.where(moved, length, 1.0), nan)


def hessian_vector_product(
    gradient: Callable[[list[tf.Tensor]], list[tf.Tensor]], weights: Weights, vector: Weights
) -> list[tf.Tensor]:
    """H v at given weights, forward over reverse: the derivative of the gradient along v.

    Args:
        gradient: The gradient at given weights, graph code.
        weights: A tensor per variable.
        vector: v, a tensor per variable.
    """
    weights = [tf.identity(w) for w in weights]
    with tf.autodiff.ForwardAccumulator(weights, list(vector)) as accumulator:
        value = gradient(weights)
    return accumulator.jvp(value, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def power_iteration(
    gradient: Callable[[list[tf.Tensor]], list[tf.Tensor]],
    weights: Weights,
    start: Weights,
    iterations: int = POWER_ITERATIONS,
) -> tf.Tensor:
    """|lambda| of the Hessian's largest eigenvalue, as |Rayleigh quotient| after some iterations.

    Args:
        gradient: The gradient at given weights, graph code.
        weights: A tensor per variable.
        start: The first direction, a tensor per variable; not zero.
        iterations: Hessian-vector products, 1 or more.
    """

    def body(_: tf.Tensor, *direction: tf.Tensor) -> tuple[tf.Tensor, ...]:
        product = hessian_vector_product(gradient, weights, direction)
        return gradients.inner_product(direction, product), *_normalized(product)

    zero = tf.zeros((), gradients.accumulation_dtype(start))
    quotient, *_ = tf.while_loop(
        lambda *_: True, body, (zero, *_normalized(start)), maximum_iterations=iterations
    )
    return tf.abs(quotient)


class SmoothnessEstimate:
    """L as a running estimate, in variables of the learner that is given.

    "secant": L <- max(l, 0.99 L) with l the secant over the step on its own memory batch. "power":
    the mean of L and the largest |eigenvalue| of the Hessian on the memory batch. Before the first
    estimate L is `start`. Every estimate is kept in [0.01, 0.9/alpha]. The extra passes take batch
    normalisation with its moving averages, and change nothing but this estimate.

    Args:
        mode: "secant" or "power".
        start: L before the first estimate.
        seed: Seed of the power iteration's first directions.
        make_state: (name, shape, dtype, value) -> a variable of the learner.
    """

    def __init__(
        self, mode: str, start: float, seed: int, make_state: Callable[..., keras.Variable]
    ):
        self.mode, self.start, self.seed = mode, float(start), int(seed)
        self.every = SECANT_EVERY if mode == "secant" else POWER_EVERY
        self.value = make_state("smoothness", (), "float32", 0.0)
        self.replays = make_state("smoothness_replays", (), "int64", 0)

    def in_use(self, alpha: tf.Tensor) -> tf.Tensor:
        """L_eff = min(L, 0.9/alpha), a scalar in the dtype of alpha."""
        value = tf.cast(self.value.value, alpha.dtype)
        value = tf.where(value > 0, value, tf.constant(self.start, alpha.dtype))
        return tf.minimum(value, MOST_TIMES_ALPHA / alpha)

    def refresh(self, learner: Any, replay: Batch, before: Weights) -> tf.Tensor:
        """Take note of a step that is done, and estimate L if it is time. Graph code.

        Args:
            learner: Its network is at x+, and its optimizer gives alpha.
            replay: The memory batch I of the step.
            before: x.

        Returns:
            float32 scalar, the new measurement alone; nan where there is none.
        """
        replayed = tf.reduce_any(replay.weights > 0)
        due = replayed & (self.replays.value % self.every == 0)
        measure = self._secant if self.mode == "secant" else self._power
        fresh = tf.cond(
            due,
            lambda: tf.cast(measure(learner, replay, before), tf.float32),
            lambda: tf.constant(float("nan")),
        )
        old, known = self.value.value, tf.math.is_finite(fresh)
        if self.mode == "secant":
            new = tf.maximum(fresh, _SECANT_DECAY * old)
        else:
            new = tf.where(old > 0, old + _POWER_WEIGHT * (fresh - old), fresh)
        most = MOST_TIMES_ALPHA / tf.cast(learner.optimizer.learning_rate, tf.float32)
        new = tf.minimum(tf.maximum(new, LEAST), most)
        self.value.assign(tf.where(known, new, old))
        self.replays.assign_add(tf.cast(replayed, tf.int64))
        return fresh

    def _secant(self, learner: Any, replay: Batch, before: Weights) -> tf.Tensor:
        after = current_weights(learner)
        points = (list(before), after)
        first, last = (_memory_gradient(learner, x, replay) for x in points)
        return secant(first, last, before, after)

    def _power(self, learner: Any, replay: Batch, before: Weights) -> tf.Tensor:
        def gradient(weights: list[tf.Tensor]) -> list[tf.Tensor]:
            return _memory_gradient(learner, weights, replay)

        return power_iteration(gradient, before, self._signs(before))

    def _signs(self, like: Weights) -> list[tf.Tensor]:
        """A random sign for every weight."""
        first = self.replays.value * len(like)
        result = []
        for i, weight in enumerate(like):
            bits = tf.random.stateless_uniform(
                tf.shape(weight), apart(self.seed, first + i),
                minval=None, maxval=None, dtype=tf.int32, alg="philox",
            )  # fmt: skip
            result.append(tf.where(bits < 0, tf.constant(-1.0, weight.dtype), 1.0))
        return result


def _difference(left: Weights, right: Weights) -> list[tf.Tensor]:
    return [a - b for a, b in zip(left, right, strict=True)]


def _normalized(vector: Weights) -> list[tf.Tensor]:
    length = tf.sqrt(gradients.squared_norm(vector))
    return [tf.math.divide_no_nan(v, tf.cast(length, v.dtype)) for v in vector]


def _memory_gradient(learner: Any, weights: Weights, replay: Batch) -> list[tf.Tensor]:
    """f_I at given weights, with the moving averages of batch normalisation.

    A step has the network's regularization in g_J alone.
    """
    at = gradient_at(
        learner, list(weights), replay, False, learner.memory_losses, regularized=False
    )
    return at.gradients
