"""Training of the experts of CN-DPM (Lee et al., 2020): on their shares of a batch, and asleep."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from nccl_tf.methods.cn_dpm.experts import Experts
from nccl_tf.methods.cn_dpm.parts import Part, PartOutput
from nccl_tf.methods.cn_dpm.rows import Features
from nccl_tf.rng import uniform_below

GRADIENT_BOUND = 0.5
"""No entry of a gradient is larger."""
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
WEIGHT_DECAY = 1e-5
"""Factor on the squared weights of a new expert in its sleep."""
LEAST_USAGE = 0.1
"""An expert that a batch gives less than so many examples is not trained on it."""


class Sleep(NamedTuple):
    """How a new expert is trained.

    Attributes:
        inputs: Raw inputs to train on, [capacity, h, w, c].
        labels: int64 [capacity].
        steps: Updates.
        batch_size: Examples in an update, drawn with replacement.
        rate: Step size.
        seed: Gives the seed (int64 [2]) of random draw number i (int64 scalar).
    """

    inputs: tf.Tensor
    labels: tf.Tensor
    steps: int
    batch_size: int
    rate: tf.Tensor | float
    seed: Callable[[tf.Tensor], tf.Tensor]


class AdamRow(NamedTuple):
    """The weights of a part of one expert and the state of Adam for them.

    Attributes:
        weights: [size].
        first_moment: [size].
        second_moment: [size].
        steps: int64 scalar, updates so far.
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


class PartTraining:
    """Trains one part of the experts, all autoencoders or all classifiers.

    Args:
        experts: All experts.
        part: `experts.vae` or `experts.classifier`.
        state: Makes a variable of the learner: of a name, shape, dtype and constant value.
    """

    def __init__(self, experts: Experts, part: Part, state: Callable[..., keras.Variable]):
        self.experts, self.part = experts, part
        self.rows = experts.part_rows(part)
        name, dtype = self.rows.name, experts.variable_dtype
        self.first_moments = state(f"{name}_first_moments", self.rows.shape, dtype, 0)
        self.second_moments = state(f"{name}_second_moments", self.rows.shape, dtype, 0)
        self.steps = state(f"{name}_steps", (self.rows.shape[0],), "int64", 0)

    def losses(
        self, output: PartOutput, inputs: tf.Tensor, labels: tf.Tensor, noise: tf.Tensor
    ) -> tf.Tensor:
        """-log p(x) or -log p(y | x) of each image, [n].

        Args:
            output: Of the part.
            inputs: [n, h, w, c] in [0, 1].
            labels: int64 [n].
            noise: [n, samples, latent].
        """
        if self.part is self.experts.vae:
            return -self.experts.vae.log_density(inputs, output, noise)
        return -tf.gather(output.result, labels, axis=1, batch_dims=1)

    def train(
        self,
        inputs: tf.Tensor,
        labels: tf.Tensor,
        noise: tf.Tensor,
        features: Features,
        shares: tf.Tensor,
        rate: tf.Tensor | float,
    ) -> None:
        """One update of every expert that has a share in a batch.

        Args:
            inputs: [n, h, w, c] in [0, 1].
            labels: int64 [n].
            noise: [n, samples, latent].
            features: Of all experts for these inputs.
            shares: [1 + experts, n], the weight of each example for each expert.
            rate: Step size.
        """
        usage = tf.reduce_sum(shares, axis=1)

        def update(expert: tf.Tensor | int, forward: Callable[[tf.Tensor], PartOutput]) -> None:
            row = self._row(expert)
            with tf.GradientTape() as tape:
                tape.watch(row.weights)
                losses = self.losses(forward(row.weights), inputs, labels, noise)
                loss = tf.reduce_sum(shares[expert] * losses)
            self._put(expert, row.updated(tape.gradient(loss, row.weights), rate))

        def later(expert: tf.Tensor) -> tuple[tf.Tensor]:
            known = self.part.mask_later(features, expert)
            tf.cond(
                usage[expert] > LEAST_USAGE,
                lambda: update(
                    expert, lambda row: self.part.forward_lateral(row, inputs, expert, known)
                ),
                lambda: None,
            )
            return (expert + 1,)

        tf.cond(
            usage[1] > LEAST_USAGE,
            lambda: update(1, lambda row: self.part.forward_first(row, inputs)),
            lambda: None,
        )
        if self.experts.max_experts > 1:
            count = self.experts.count.value
            tf.while_loop(lambda expert: expert <= count, later, (tf.constant(2, tf.int64),))

    def sleep(self, expert: tf.Tensor, sleep: Sleep) -> None:
        """Train the part of a new expert.

        Args:
            expert: int64 scalar, its number: one above the number of experts.
            sleep: How.
        """
        first = self._asleep(sleep, lambda row, inputs: self.part.forward_first(row, inputs))
        if self.experts.max_experts == 1:
            return first(expert)

        def forward_lateral(row: tf.Tensor, inputs: tf.Tensor) -> PartOutput:
            _, features = self.experts.map_experts(self.part, inputs, lambda _: tf.zeros([1]))
            return self.part.forward_lateral(row, inputs, expert, features)

        later = self._asleep(sleep, forward_lateral)
        return tf.cond(expert == 1, lambda: first(expert), lambda: later(expert))

    def _asleep(
        self, sleep: Sleep, forward: Callable[[tf.Tensor, tf.Tensor], PartOutput]
    ) -> Callable[[tf.Tensor], None]:
        size = sleep.batch_size

        def step(i: tf.Tensor, *parts: tf.Tensor) -> tuple[tf.Tensor, ...]:
            row = AdamRow(*parts)
            chosen = uniform_below(
                sleep.seed(2 * i), tf.fill([size], tf.constant(sleep.inputs.shape[0], tf.int64))
            )
            inputs = self.experts.scale_images(tf.gather(sleep.inputs, chosen))
            noise = self.experts.sample_noise(sleep.seed(2 * i + 1), size)
            with tf.GradientTape() as tape:
                tape.watch(row.weights)
                result = forward(row.weights, inputs)
                losses = self.losses(result, inputs, tf.gather(sleep.labels, chosen), noise)
                loss = tf.reduce_mean(losses)
            gradient = tape.gradient(loss, row.weights) + 2 * WEIGHT_DECAY * row.weights
            return (i + 1, *row.updated(gradient, sleep.rate))

        def run(expert: tf.Tensor) -> None:
            start = (tf.constant(0, tf.int64), *self._row(expert))
            _, *parts = tf.while_loop(
                lambda i, *_: i < sleep.steps, step, start, parallel_iterations=1
            )
            self._put(expert, AdamRow(*parts))

        return run

    def _row(self, expert: tf.Tensor | int) -> AdamRow:
        variables = (self.rows, self.first_moments, self.second_moments, self.steps)
        return AdamRow(*(variable.value.sparse_read(expert) for variable in variables))

    def _put(self, expert: tf.Tensor | int, row: AdamRow) -> None:
        variables = (self.rows, self.first_moments, self.second_moments, self.steps)
        for variable, value in zip(variables, row, strict=True):
            variable.value.scatter_nd_update([[expert]], value[None])
