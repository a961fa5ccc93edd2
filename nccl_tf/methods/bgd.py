"""Bayesian gradient descent (Zeno et al., 2018, "Task agnostic continual learning using online
variational Bayes")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Step
from nccl_tf.methods.rows import bgd as rows
from nccl_tf.rng import seeded, standard_normal
from nccl_tf.variables import assign_all


def next_sigma(sigma: tf.Tensor, correlation: tf.Tensor) -> tf.Tensor:
    r"""The standard deviation after a step.

    $\sigma \sqrt{1 + a^2} - \sigma a$ with $a = \sigma E[g \varepsilon] / 2$, written as
    $\sigma \exp(-\operatorname{asinh} a)$, which loses no digits to the difference and is always
    above 0.

    Args:
        sigma: The standard deviation before, of any shape.
        correlation: $E[g \varepsilon]$, of the same shape.
    """
    return sigma * tf.exp(-tf.asinh(sigma * correlation / 2))


@keras.saving.register_keras_serializable(package="nccl_tf")
class BGD(Learner):
    r"""Learns a mean and a deviation of every weight, and moves sure weights less.

    With $\theta = \mu + \sigma \varepsilon$, $\varepsilon$ normal, and $g$ the gradient at $\theta$
    of the loss summed over the batch, S samples give $E[g]$ and $E[g \varepsilon]$, and
    $\mu^+ = \mu - \eta \sigma^2 E[g]$, $\sigma^+ = \sigma \sqrt{1 + (\sigma E[g \varepsilon]/2)^2}
    - \sigma^2 E[g \varepsilon]/2$. $\eta$ is the optimizer's learning rate, with
    `keras.optimizers.SGD(eta)`. The network's variables hold $\mu$, and predict. The samples pass
    through batch normalisation with the batch's own statistics; the moving averages take those of
    one more pass at $\mu$, whose loss is logged.

    Args:
        network: Any Keras model from inputs to one logit per class; its weights are $\mu$ at first.
        bgd_samples: S.
        bgd_sigma: $\sigma_0$ of every weight.
        **kwargs: As for `Learner`.

    Raises:
        UserError: A number is out of range.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.BGD(nccl_tf.networks.mlp((28, 28, 1), 10), bgd_samples=10)
    """

    log_names: ClassVar[tuple[str, ...]] = ("loss", "sigma")
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "moves its means by an inverse hyperbolic sine, which LiteRT has not",
        "optimizer_state": "moves each mean by eta sigma^2 times the mean gradient",
        "refreezing": "keeps state for each trainable weight",
    }

    def __init__(
        self,
        network: keras.Model,
        *,
        bgd_samples: int = 10,
        bgd_sigma: float = 0.06,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.bgd_samples = bgd_samples
        self.bgd_sigma = bgd_sigma
        self.sigmas = [
            self.state(f"sigma_{i}", v, v.dtype, self.bgd_sigma)
            for i, v in enumerate(network.trainable_variables)
        ]
        self.draws = self.state("draws", (), "int64")

    def noise(self) -> list[tf.Tensor]:
        """Independent standard normal numbers, a tensor per trainable variable."""
        seed = seeded(self.seed, self.draws.value.assign_add(1))
        sizes = [int(np.prod(s.shape)) for s in self.sigmas]
        drawn = tf.split(standard_normal(seed, sum(sizes), self.sigmas[0].dtype), sizes)
        return [tf.reshape(part, s.shape) for part, s in zip(drawn, self.sigmas, strict=True)]

    def learn(self, batch: Batch) -> Step:
        logits = self.forward(batch, training=True)
        _, logs = self.training_loss(logits, batch)
        sigmas = [s.value for s in self.sigmas]
        zeros = [tf.zeros_like(s) for s in sigmas]

        def sample(i: tf.Tensor, totals: list[tf.Tensor], products: list[tf.Tensor]) -> Any:
            noise = self.noise()
            gradients = self._sampled_gradients(batch, sigmas, noise)
            totals = [t + g for t, g in zip(totals, gradients, strict=True)]
            products = [p + g * e for p, g, e in zip(products, gradients, noise, strict=True)]
            return i + 1, totals, products

        _, totals, products = tf.while_loop(
            lambda i, *_: i < self.bgd_samples,
            sample,
            (0, zeros, zeros),
            maximum_iterations=self.bgd_samples,
            parallel_iterations=1,
        )
        gradients = [s * s * t / self.bgd_samples for s, t in zip(sigmas, totals, strict=True)]
        state = [next_sigma(s, p / self.bgd_samples) for s, p in zip(sigmas, products, strict=True)]
        size = sum(int(np.prod(s.shape)) for s in sigmas)
        mean_sigma = tf.add_n([tf.reduce_sum(s) for s in state]) / size
        return Step(gradients, logits, {**logs, "sigma": mean_sigma}, state=state)

    def _sampled_gradients(
        self, batch: Batch, sigmas: list[tf.Tensor], noise: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        r"""Gradients at $\mu + \sigma \varepsilon$ of the loss summed over the batch."""
        count = tf.math.count_nonzero(batch.weights > 0)
        weights = [
            v.value + s * e for v, s, e in zip(self.trainable_variables, sigmas, noise, strict=True)
        ]

        def loss_of() -> tuple[tf.Tensor, None]:
            # Nothing is assigned inside the scope, the moving averages neither.
            state = zip(self.trainable_variables, weights, strict=True)
            with keras.StatelessScope(state, collect_losses=True):
                logits = self.forward(batch, training=True)
                regularization = self.regularization()
                loss = self.training_loss(logits, batch)[0] + regularization
                return loss * tf.cast(count, loss.dtype), None

        return self.gradient(loss_of, at=weights)[0]

    def apply_step(self, step: Step) -> None:
        super().apply_step(step)
        assign_all(self.sigmas, step.state)
