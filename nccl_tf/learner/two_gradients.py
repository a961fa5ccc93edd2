"""The base of the methods that weigh a memory gradient against a stream gradient."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import keras
import tensorflow as tf

import nccl_tf.step_sizes as step_sizes
from nccl_tf.arguments.hyperparameters import GRADIENTS, SMOOTHNESS
from nccl_tf.batch import Batch
from nccl_tf.gradients import Products
from nccl_tf.learner.arguments import ReplayArguments
from nccl_tf.learner.gradients.tapes import GradientPair, TapeGradients, TapePair
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Logs, Step, with_logs
from nccl_tf.theory import forgetting

Weights = tuple[tf.Tensor, tf.Tensor]


class ReplayGradientLearner(ReplayLearner):
    r"""Takes $f_I$ on the memory batch and $g_J$ on the stream batch at the same weights.

    The update is $x^+ = x - \alpha_H f_I - \beta_H g_J$. The optimizer receives
    $(\alpha_H f_I + \beta_H g_J)/\alpha$, so that with `keras.optimizers.SGD(alpha)` the update is
    exactly the paper's; $\alpha$ is read from the optimizer at every step. A method overrides
    `step_sizes`, which knows the scalars of a step; `step_sizes_by_loss`, which knows its losses
    too; `weigh`, which knows the pair of gradients; or `combine`, which has the gradients
    themselves.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: The replay memory.
        smoothness: $L$ of the paper, in 1/step size; it enters $\Gamma$, and $\beta^*$ of NCCL.
        gradients: "auto" weighs both gradients of a network of dense layers in one pass, without
            forming them, and takes two tapes for every other network; "two_tapes" always does.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: `smoothness` or `gradients` is out of range.
    """

    log_names: ClassVar[tuple[str, ...]] = (
        "loss",
        "memory_loss",
        "lambda",
        "cosine",
        "memory_gradient_norm",
        "stream_gradient_norm",
        "alpha_h",
        "beta_h",
        "interference",
        "gamma_raw",
        "gamma_surrogate",
    )
    cumulative: ClassVar[tuple[str, ...]] = ("gamma_raw", "gamma_surrogate")
    projects: ClassVar[bool] = True
    r"""Whether a step in interference is projected, so that its $\Gamma$ has a surrogate form."""
    on_replicas = True

    def __init__(
        self,
        network: keras.Model,
        memory: Any,
        *,
        smoothness: float = 1.0,
        gradients: str = "auto",
        **kwargs: Unpack[ReplayArguments],
    ):
        self.smoothness = float(SMOOTHNESS.check(smoothness))
        super().__init__(network, memory, **kwargs)
        self.gradients_argument = GRADIENTS.check(gradients)

    def learn(self, batch: Batch, *replays: Batch) -> Step:
        """Weigh both gradients, or take the stream's alone where there is no replay."""
        if not replays:
            return super().learn(batch)
        return self._step_of(self.gradient_path.pair(batch, replays[0]))

    def _step_of(self, pair: GradientPair) -> Step:
        gradients, logs = self.combine(pair)
        return Step(gradients, pair.logits, {**pair.losses, **logs})

    def combine(self, pair: GradientPair) -> tuple[Sequence[tf.Tensor], Logs]:
        r"""What the optimizer receives; for methods whose rule is no sum of both gradients.

        Args:
            pair: The gradients, `pair.memory` and `pair.stream`, a tensor per trainable variable.

        Returns:
            $(\alpha_H f_I + \beta_H g_J)/\alpha$, a tensor per trainable variable, and scalars by
            the names in `log_names`.
        """
        weights, logs = with_logs("weigh", self.weigh(pair), "two weights")
        return pair.combined(*weights), logs

    def weigh(self, pair: GradientPair) -> tuple[Weights, Logs]:
        r"""What both gradients count in the update.

        Args:
            pair: The gradients, with `pair.products()` and `pair.losses`.

        Returns:
            $\alpha_H/\alpha$ and $\beta_H/\alpha$, scalars, and scalars by the names in
            `log_names`.
        """
        products = pair.products()
        alpha = tf.cast(self.optimizer.learning_rate, products.lambda_.dtype)
        losses = {name: tf.cast(loss, alpha.dtype) for name, loss in pair.losses.items()}
        sizes = self.step_sizes_by_loss(products, losses, alpha)
        # A schedule may end at a rate of 0, where nothing moves.
        weights = [tf.math.divide_no_nan(size, alpha) for size in (sizes.alpha_h, sizes.beta_h)]
        return (weights[0], weights[1]), self.quantities(products, sizes, alpha)

    def quantities(self, products: Products, sizes: step_sizes.StepSizes, alpha: tf.Tensor) -> Logs:
        r"""What a step logs of its products and step sizes: scalars by the names in `log_names`.

        Args:
            products: $\Lambda$, $\|f_I\|^2$ and $\|g_J\|^2$, scalars; or of each variable by
                itself, [variables], of which sums are logged.
            sizes: Of the same shape; of [variables] means are logged.
            alpha: The learning rate, a scalar.
        """
        lambda_, memory_squared_norm, stream_squared_norm = products
        smoothness = tf.constant(self.smoothness, alpha.dtype)
        raw = forgetting.gamma(
            sizes.alpha_h, sizes.beta_h, lambda_, stream_squared_norm, smoothness
        )
        projected = forgetting.gamma_surrogate(
            alpha, lambda_, memory_squared_norm, stream_squared_norm, smoothness
        )
        # The surrogate books projected steps; an unprojected step has its raw Gamma.
        surrogate = tf.where(sizes.interference & self.projects, projected, raw)
        sums = [lambda_, memory_squared_norm, stream_squared_norm, raw, surrogate]
        means = [sizes.alpha_h, sizes.beta_h, tf.cast(sizes.interference, lambda_.dtype)]
        if lambda_.shape.rank:
            sums, means = list(map(tf.reduce_sum, sums)), list(map(tf.reduce_mean, means))
        norms = tf.sqrt(sums[1]), tf.sqrt(sums[2])
        return {
            "lambda": sums[0],
            "cosine": tf.math.divide_no_nan(sums[0], norms[0] * norms[1]),
            "memory_gradient_norm": norms[0],
            "stream_gradient_norm": norms[1],
            "alpha_h": means[0],
            "beta_h": means[1],
            "interference": means[2],
            "gamma_raw": sums[3],
            "gamma_surrogate": sums[4],
        }

    def step_sizes_by_loss(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        r"""$\alpha_H$ and $\beta_H$ of a rule that knows the losses: by default those of
        `step_sizes`.

        Args:
            products: $\Lambda$, $\|f_I\|^2$ and $\|g_J\|^2$, scalars.
            losses: "loss", the mean loss on the stream batch without regularisation, and
                "memory_loss", scalars in the dtype of $\alpha$.
            alpha: The learning rate, a scalar.
        """
        return self.step_sizes(*products, alpha)

    def step_sizes(
        self,
        lambda_: tf.Tensor,
        memory_squared_norm: tf.Tensor,
        stream_squared_norm: tf.Tensor,
        alpha: tf.Tensor,
    ) -> step_sizes.StepSizes:
        r"""$\alpha_H$ and $\beta_H$ from $\Lambda$, $\|f_I\|^2$, $\|g_J\|^2$ and $\alpha$,
        scalars."""
        raise NotImplementedError(
            f"{type(self).__name__} weighs its two gradients nowhere: define weigh(pair) or "
            "step_sizes(lambda_, memory_squared_norm, stream_squared_norm, alpha)"
        )

    def learn_on_replicas(self, *batches: Batch) -> Step:
        r"""$f_I$ and $g_J$ are those of the whole batches before $\Lambda$ and the norms are
        taken."""
        batch, *replays = batches
        if not replays:
            return super().learn_on_replicas(*batches)
        replay = replays[0]
        pair = tf.cond(
            tf.reduce_any(replay.weights > 0),
            lambda: _parts(self.gradient_path.pair(batch, replay)),
            lambda: self._stream_alone(batch),
        )
        memory, stream, losses, logits = pair
        memory, stream, losses, replayed = self.replicas.mean_pair(
            (memory, stream), losses, (batch, replay)
        )
        step = self._step_of(TapePair(memory, stream, losses, logits))
        # Where the memory is empty f_I is 0, and only the loss means something.
        nan = tf.constant(float("nan"))
        logs = {
            name: tf.where(replayed, tf.cast(value, tf.float32), nan)
            for name, value in step.logs.items()
        }
        return step._replace(logs={**logs, "loss": step.logs["loss"]})

    def _stream_alone(self, batch: Batch) -> Any:
        step = self.learn(batch)
        zeros = [tf.zeros_like(gradient) for gradient in step.gradients]
        loss = step.logs["loss"]
        losses = {"loss": loss, "memory_loss": tf.zeros_like(loss)}
        return zeros, list(step.gradients), losses, step.logits

    def compile(self, optimizer: Any = "sgd", *args: Any, **kwargs: Any) -> None:
        """As `Learner.compile`; warns once where the optimizer is not plain SGD."""
        super().compile(optimizer, *args, **kwargs)
        if self.gradients_argument == "two_tapes":
            self.gradient_path = TapeGradients(self)
        inner: Any = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        if type(inner) is not keras.optimizers.SGD or inner.momentum:
            logging.getLogger("nccl_tf").warning(
                "%s transforms the step (alpha_H f_I + beta_H g_J)/alpha that it receives: the "
                "paper's theory holds for keras.optimizers.SGD without momentum",
                type(inner).__name__,
            )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "smoothness": self.smoothness,
            "gradients": self.gradients_argument,
        }


def _parts(pair: GradientPair) -> tuple[Any, ...]:
    return pair.memory, pair.stream, pair.losses, pair.logits
