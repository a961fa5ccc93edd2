"""The base of the methods that weigh a memory gradient against a stream gradient."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments import hyperparameters as hp
from nccl_tf.batch import Batch
from nccl_tf.gradients import Products, loss_scale
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.row_gradients import RowGradients
from nccl_tf.learner.step import GradientPair, Logits, Logs, Step
from nccl_tf.step_sizes import StepSizes
from nccl_tf.theory import forgetting

_FORWARD = (
    "outputs", "raw_logits", "forward_all", "replay_logits", "regularization", "two_tapes",
)  # fmt: skip
"""The methods that `RowGradients.pair` takes the place of."""


class TwoGradientLearner(ReplayLearner):
    r"""Takes $f_I$ on the memory batch and $g_J$ on the stream batch at the same weights.

    The update is $x^+ = x - \alpha_H f_I - \beta_H g_J$. The optimizer receives
    $(\alpha_H f_I + \beta_H g_J)/\alpha$, so that with `keras.optimizers.SGD(alpha)` the update is
    exactly the paper's; $\alpha$ is read from the optimizer at every step. A method overrides
    `step_sizes`, which has the scalars of a step; or `combine`, which has the gradients.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: The replay memory.
        smoothness: $L$ of the paper, in 1/step size; it enters $\Gamma$, and $\beta^*$ of NCCL.
        gradients: "auto" weighs both gradients of a network of dense layers by rows, in one pass
            that does not form them (`row_gradients`), and takes two tapes for every other network;
            "two_tapes" always does.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: `smoothness` or `gradients` is out of range.
    """

    _owns_private_names = True
    _rows: RowGradients | None
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
    hyperparameters: ClassVar[hp.Rows] = (hp.SMOOTHNESS, hp.GRADIENTS)
    cannot: ClassVar[Mapping[str, str]] = {
        "optimizer_state": "weighs two gradients for the step alpha_H f_I + beta_H g_J"
    }
    on_replicas = True

    def __init__(
        self,
        network: keras.Model,
        memory: Any,
        *,
        smoothness: float = 1.0,
        gradients: str = "auto",
        **kwargs: Any,
    ):
        self.smoothness = smoothness
        super().__init__(network, memory, **kwargs)
        self.gradients = gradients
        self._rows = None

    def replay(self, batch: Batch, *replays: Batch) -> Step:
        """The gradients of one step, weighed by the method's rule."""
        return self.weighed(self.gradient_pair(batch, *replays))

    def gradient_pair(self, batch: Batch, replay: Batch) -> GradientPair:
        r"""$f_I$ on the memory batch and $g_J$ on the stream batch, by rows or on two tapes."""
        if self._rows is not None:

            def losses_of(stream: tf.Tensor, memory: tf.Tensor) -> tuple[Any, Any, Logits]:
                logits = self.masked_replay(stream, (memory,), batch, replay)
                memory_loss = self.memory_loss(logits.memory[0], replay)
                return self.stream_loss(logits.stream, batch), memory_loss, logits.stream

            return self._rows.pair(batch, replay, losses_of)
        return self.two_tapes(batch, replay)

    def two_tapes(self, batch: Batch, replay: Batch) -> GradientPair:
        r"""$f_I$ on the memory batch and $g_J$, with regularisation, on the stream batch."""
        with tf.GradientTape() as memory_tape, tf.GradientTape() as stream_tape:
            logits = self.replay_logits(batch, replay)
            regularization = self.regularization()
            (memory_logits,) = logits.memory
            memory_loss = self.memory_loss(memory_logits, replay)
            stream_loss = self.stream_loss(logits.stream, batch)
            regularized_stream_loss = stream_loss + regularization
        return GradientPair(
            self.taped_gradients(memory_tape, memory_loss),
            self.taped_gradients(stream_tape, regularized_stream_loss),
            {"loss": stream_loss, "memory_loss": memory_loss},
            logits.stream,
        )

    def weighed(self, pair: GradientPair) -> Step:
        """The step of a pair of gradients."""
        gradients, logs = self.combine(pair)
        return Step(gradients, pair.logits, {**pair.losses, **logs})

    def combine(self, pair: GradientPair) -> tuple[Sequence[tf.Tensor], Logs]:
        r"""The gradient that the optimizer receives, and the logs of the rule.

        Args:
            pair: The gradients, `pair.memory` and `pair.stream`, a tensor per trainable variable.

        Returns:
            $(\alpha_H f_I + \beta_H g_J)/\alpha$, a tensor per trainable variable, and scalars by
            the names in `log_names`.
        """
        products = pair.products()
        alpha = tf.cast(self.optimizer.learning_rate, products.lambda_.dtype)
        losses = {name: tf.cast(loss, alpha.dtype) for name, loss in pair.losses.items()}
        sizes = self.step_sizes(products, losses, alpha)
        # A schedule may end at a rate of 0, where nothing moves.
        weights = [tf.math.divide_no_nan(size, alpha) for size in (sizes.alpha_h, sizes.beta_h)]
        return pair.combined(*weights), self.quantities(products, sizes, alpha)

    def step_sizes(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> StepSizes:
        r"""$\alpha_H$ and $\beta_H$ of the method's rule.

        Args:
            products: $\Lambda$, $\|f_I\|^2$ and $\|g_J\|^2$, scalars.
            losses: "loss", the mean loss on the stream batch without regularisation, and
                "memory_loss", scalars in the dtype of $\alpha$.
            alpha: The learning rate, a scalar.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no rule: define step_sizes(products, losses, alpha)"
        )

    def quantities(self, products: Products, sizes: StepSizes, alpha: tf.Tensor) -> Logs:
        r"""The logs of a step's products and step sizes: scalars by the names in `log_names`.

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

    def compile(self, optimizer: Any = "sgd", *args: Any, **kwargs: Any) -> None:
        """As `Learner.compile`."""
        super().compile(optimizer, *args, **kwargs)
        self._rows = None
        if self._may_take_rows():
            self._rows = RowGradients.of(self.network, self.trainable_variables)

    def _may_take_rows(self) -> bool:
        """Whether gradients by rows mean what the two tapes do, as far as the network allows."""
        simple = self.devices.count == 1 and loss_scale(self.optimizer) is None
        if self.gradients == "two_tapes" or not (simple and self.example_loss.is_default):
            return False
        # A class outside of the package may make outputs otherwise than layer by layer.
        seams = (getattr(type(self), name) for name in _FORWARD)
        return all(seam.__module__.startswith("nccl_tf.") for seam in seams)
