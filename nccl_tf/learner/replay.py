"""The base of the methods that replay examples from a memory."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments import hyperparameters as hp
from nccl_tf.batch import Batch, concat_batches
from nccl_tf.errors import UserError
from nccl_tf.learner.columns import LOGITS
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.losses import check_one_each, weighted_mean
from nccl_tf.learner.options.dark_replay import DarkReplay
from nccl_tf.learner.step import Logits, Logs, ReplayLogits, Step
from nccl_tf.memories.memory import Memory


class ReplayLearner(Learner):
    """A learner that replays a batch, or several, from its memory in every step.

    While the memory has nothing to read, a step is plain training on the stream. A method overrides
    `replay_loss`, one loss over all batches of a step; `memory_losses`, the loss that every rule
    takes on memory examples; or `replay`, which takes the gradients.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: The replay memory.
        memory_batch_size: Examples in each draw.
        batch_norm: How the batches pass through batch normalisation: "separate", each with its own
            statistics, memory first (mammoth passes the stream first); "joint", with the statistics
            of all; "frozen", with the moving averages.
        dark: a, weight of dark replay: the memory loss is b times the compiled loss plus a times
            the squared difference between the logits now and those that the memory kept when it
            was written, before any mask, a mean over the logits of the example's own head (Buzzega
            et al., NeurIPS 2020; their code takes the mean over all logits, so that with heads the
            same a pulls each of them harder here, by the number of heads). They are those of the
            forward pass before the step, in a column `{"logits": ((num_classes,), "float32")}`,
            which a memory without shapes gets by itself. With a target at each place they are
            those of all places.
        replay_labels: b, weight of the compiled loss on memory examples.
        **kwargs: As for `Learner`.

    Raises:
        UserError: The memory batch is below 1, `batch_norm` is unknown, a weight is below 0 or both
            are 0, or dark replay has no meaning for the method, or no column in the memory.
    """

    _owns_private_names = True
    memory_class: ClassVar[type[Memory] | None] = Memory
    hyperparameters: ClassVar[hp.Rows] = (hp.BATCH_NORM,)
    replay_draws: ClassVar[int] = 1
    """Independent draws from the memory in a step."""

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        memory_batch_size: int = 10,
        batch_norm: str = "separate",
        dark: float = 0.0,
        replay_labels: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        if option := DarkReplay.of(dark, replay_labels):
            self.add_option(option)
        if not isinstance(memory_batch_size, (int, np.integer)) or memory_batch_size < 1:
            raise UserError(
                f"received a memory batch of {memory_batch_size!r}; expected at least 1 example: "
                "raise --memory_batch_size, or use finetune to train without a memory"
            )
        self.memory_batch_size = int(memory_batch_size)
        self.devices.check_divides("memory_batch_size", self.memory_batch_size)
        self.batch_norm = batch_norm
        if self.batch_norm != hp.BATCH_NORM.default:
            self._check_option("batch_norm", self.batch_norm)

    def update(self, batch: Batch) -> Step:
        batch = self.memory.checked(batch)
        replays = [
            self._as_computed(self.memory.read(self.memory_batch_size))
            for _ in range(self.replay_draws)
        ]
        return self.replay_and_apply(batch, *replays)

    def replay_and_apply(self, batch: Batch, *replays: Batch) -> Step:
        """Take one step by `replay` and apply it; by `learn` where the memory has no examples.

        Args:
            batch: The stream batch.
            *replays: The memory batches.

        Returns:
            The applied step.
        """

        # The conditional gives gradients and moves no weight, of which XLA would make copies.
        def replay_or_learn(batch: Batch, *replays: Batch) -> Step:
            return self.devices.either(
                tf.reduce_any(replays[0].weights > 0),
                lambda: self.replay(batch, *replays).with_all_logs(self.log_names),
                lambda: self.learn(batch).with_all_logs(self.log_names),
            )

        return self.learn_and_apply(replay_or_learn, batch, *replays)

    def _as_computed(self, replay: Batch) -> Batch:
        """A memory batch whose `columns` are float64, as the logits are, in a float64 network."""
        columns = {
            name: tf.cast(column, self._logits_dtype) if column.dtype == tf.float32 else column
            for name, column in replay.extras.items()
        }
        return replay._replace(extras=columns)

    def replay(self, batch: Batch, *replays: Batch) -> Step:
        """The gradients of one step on the stream and on the memory: of `replay_loss`."""

        def loss_of() -> tuple[tf.Tensor, Any]:
            logits = self.replay_logits(batch, *replays)
            regularization = self.regularization()
            loss, logs = self.replay_loss(logits, batch, *replays)
            return loss + regularization, (logits.stream, logs)

        gradients, (logits, logs) = self.gradient(loss_of)
        return Step(gradients, logits, logs)

    def replay_loss(
        self, logits: ReplayLogits, batch: Batch, *replays: Batch
    ) -> tuple[tf.Tensor, Logs]:
        """One loss over the stream batch and the memory batches, and its logs.

        Args:
            logits: Of all batches.
            batch: The stream batch.
            *replays: `replay_draws` memory batches.

        Returns:
            A scalar, and scalars by the names in `log_names`, with "loss"; by default the mean over
            the examples of all batches together.
        """
        pairs = zip(logits.memory, replays, strict=True)
        memory_losses = [self.memory_losses(part, replay) for part, replay in pairs]
        stream_losses = self.stream_losses(logits.stream, batch)
        memory_weights = [replay.weights for replay in replays]
        for part, weights in zip(memory_losses, memory_weights, strict=True):
            check_one_each(part, weights)
        check_one_each(stream_losses, batch.weights)
        losses = tf.concat([*memory_losses, stream_losses], 0)
        weights = tf.concat([*memory_weights, self._stream_weights_for_joint_mean(batch)], 0)
        loss = weighted_mean(losses, weights)
        return loss, {
            "loss": weighted_mean(stream_losses, batch.weights),
            "memory_loss": weighted_mean(tf.concat(memory_losses, 0), tf.concat(memory_weights, 0)),
        }

    def _stream_weights_for_joint_mean(self, batch: Batch) -> tf.Tensor:
        """The weights of a stream batch, float32 [n], in a mean with stored examples.

        These weigh 1, or what their class does, so that those of the stream have to on the average.
        """
        if not self.class_weighing.are_set:
            # Of 0 and 1 the mean above 0 is 1 already.
            has_weights = self.execution.known.has_weights
            return with_mean_one(batch.weights) if has_weights else batch.weights
        factors = self.class_weighing.of(batch.labels)
        return factors * with_mean_one(tf.math.divide_no_nan(batch.weights, factors))

    def memory_loss(self, logits: Logits, replay: Batch) -> tf.Tensor:
        """The training loss of a memory batch, a scalar: the mean of `memory_losses` by weights.

        For methods to call; one that has other losses overrides `memory_losses`.
        """
        return weighted_mean(self.memory_losses(logits, replay), replay.weights)

    def memory_losses(self, logits: Logits, replay: Batch) -> tf.Tensor:
        """The training loss of each example of a memory batch, [n], dark replay included."""
        losses = self.example_loss.of(logits.masked, replay)
        if dark := self.option(DarkReplay):
            losses = dark.weighed(losses, lambda: self.logit_distances(logits.raw, replay))
        for option in self.options:
            losses = option.loss(losses, logits, replay)
        return losses

    def logit_distances(self, logits: tf.Tensor, replay: Batch) -> tf.Tensor:
        """Mean squared differences between logits now and those that the memory kept, [n].

        The term of Buzzega et al., "Dark experience for general continual learning" (NeurIPS 2020),
        eq. 5, as a mean over logits as in the authors' code; with a target at each place a mean
        over the places too, by their weights, those left out that the loss ignores.

        Args:
            logits: [n, ..., classes], before any mask; of an example with a head those of its own
                are compared.
            replay: A memory batch with the column "logits".
        """
        logits = at_least_float32(logits)
        squares = tf.square(logits - tf.cast(replay.extras[LOGITS], logits.dtype))
        compared = tf.ones_like(squares) if self.heads is None else self.heads.of(replay.tasks)
        distances = weighted_mean(squares, compared)
        return self.example_loss.over_places(distances, replay.labels, replay.place_weights)

    def replay_logits(self, batch: Batch, *replays: Batch) -> ReplayLogits:
        """Logits of the stream batch and of memory batches, by the batch-norm policy."""
        *memory, stream = self.forward_all(self.raw_logits, *replays, batch)
        return self.masked_replay(stream, tuple(memory), batch, *replays)

    def masked_replay(
        self, stream: tf.Tensor, memory: tuple[tf.Tensor, ...], batch: Batch, *replays: Batch
    ) -> ReplayLogits:
        """The logits of all batches from the raw ones.

        With joint batch norm the union mask is the union over all batches.
        """
        if self.batch_norm == "joint" and self.heads is not None and self.heads.mask == "union":
            sizes = [tf.shape(part.labels)[0] for part in (*replays, batch)]
            joint = self.masked(tf.concat([*memory, stream], 0), concat_batches(*replays, batch))
            *masked, masked_stream = tf.split(joint, sizes)
        else:
            masked = [self.masked(raw, part) for raw, part in zip(memory, replays, strict=True)]
            masked_stream = self.masked(stream, batch)
        parts = zip(memory, masked, strict=True)
        return ReplayLogits(Logits(stream, masked_stream), tuple(Logits(*p) for p in parts))

    def raw_logits(self, batch: Batch, training: bool) -> tf.Tensor:
        """Raw logits [n, classes] of a batch."""
        return self.outputs(batch.inputs, batch.tasks, training)

    def forward_all(
        self, forward: Callable[[Batch, bool], tf.Tensor], *batches: Batch
    ) -> list[tf.Tensor]:
        """`forward(examples, training)` of each batch, by the batch-norm policy."""
        passes = functools.partial(self._forward_all, forward)
        return self.devices.outputs(passes, *batches)

    def _forward_all(
        self, forward: Callable[[Batch, bool], tf.Tensor], *batches: Batch
    ) -> list[tf.Tensor]:
        if self.batch_norm == "joint":
            sizes = [tf.shape(batch.labels)[0] for batch in batches]
            return tf.split(forward(concat_batches(*batches), True), sizes)
        training = self.batch_norm == "separate"
        return [forward(batch, training) for batch in batches]


def with_mean_one(weights: tf.Tensor) -> tf.Tensor:
    """Weights float32 [n] in the same ratios, of which those above 0 have the mean 1."""
    count = tf.math.count_nonzero(weights > 0, dtype=weights.dtype)
    return weights * tf.math.divide_no_nan(count, tf.reduce_sum(weights))
