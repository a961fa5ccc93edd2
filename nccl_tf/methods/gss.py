"""Gradient-based sample selection, the greedy variant (Aljundi et al., NeurIPS 2019)."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch, in_random_order
from nccl_tf.gradients import accumulation_dtype, squared_norm
from nccl_tf.learner import stateless
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Logits, Step
from nccl_tf.memories.scored import ScoredMemory
from nccl_tf.methods.rows import gss as rows
from nccl_tf.networks.inspection import has_convolutions

FIRST_COSINE = 0.1
"""Stands in for the cosine of the examples that are stored first."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class GSSGreedy(ReplayLearner):
    """Replays from a memory of examples whose gradients are unlike (algorithm 2 of the paper).

    Each stream batch is learned with `gss_iterations` pairs of SGD steps, one on the batch, one on
    a random memory batch. Then it is offered to the memory: its examples are scored by the highest
    cosine of their gradients with n gradients of random memory batches, all at the weights after
    the steps, with fixed batch-norm statistics. As in the released code, a full memory lets a batch
    in only if the cosine of the batch's own gradient is negative.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A `ScoredMemory`.
        gss_iterations: Pairs of steps on each batch; None for 3, or 10 where the network has
            convolutions.
        gss_gradients: n, gradients of memory batches to compare with.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: A number is out of range.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ScoredMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.GSSGreedy(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    memory_class = ScoredMemory
    log_names: ClassVar[tuple[str, ...]] = ("loss", "memory_loss")
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "scores each example by a gradient in a loop that LiteRT has not",
        **rows.GSS_GREEDY.refuses,
        "padding": "cuts what it reads into groups of one size, which rows between would break",
    }

    def __init__(
        self,
        network: keras.Model,
        memory: ScoredMemory,
        *,
        gss_iterations: int | None = None,
        gss_gradients: int = 10,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.gss_iterations = gss_iterations
        self.gss_gradients = gss_gradients
        self._iterations = self.gss_iterations or (10 if has_convolutions(network) else 3)

    def update(self, batch: Batch) -> Step:
        """All pairs of steps; logits and losses are those of the first step of each kind."""

        def pair(i: tf.Tensor, first: Any) -> tuple[tf.Tensor, Any]:
            step = self.learn_and_apply(self.learn, batch)
            replay = self.memory.read(self.memory_batch_size)
            # What is not finite in the stream must not be followed by a step on the memory.
            replays = tf.reduce_any(replay.weights > 0) & ~step.is_skipped
            memory_loss = tf.cond(
                replays,
                lambda: self.learn_and_apply(self.learn, replay).logs["loss"],
                lambda: tf.constant(float("nan")),
            )
            here = step.logits, {"loss": step.logs["loss"], "memory_loss": memory_loss}
            best = tf.nest.map_structure(lambda old, new: tf.where(i > 0, old, new), first, here)
            return i + 1, best

        outputs = self.network.outputs[0]
        raw = tf.zeros([tf.shape(batch.labels)[0], *outputs.shape[1:]], outputs.dtype)
        nothing = Logits(raw, at_least_float32(raw)), dict.fromkeys(self.log_names, tf.zeros(()))
        _, (logits, logs) = tf.while_loop(lambda i, _: i < self._iterations, pair, (0, nothing))
        return Step([], logits, logs)

    def store(self, batch: Batch, logits: Logits) -> None:
        drawn = self.memory.read(self.gss_gradients * self.memory_batch_size)
        # A draw is in no random order, and one of the whole memory in that of its slots.
        drawn = in_random_order(drawn, self.memory.next_seed())
        cosines = self.cosines(batch, drawn, self.memory.has_room())
        self.memory.offer(batch, *cosines)

    def cosines(self, batch: Batch, drawn: Batch, room: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """How near the gradients of a batch come to those of memory batches.

        Args:
            batch: The stream batch.
            drawn: `gss_gradients` memory batches, one after the other.
            room: bool scalar, whether the memory has an empty slot, so that examples are scored
                even if the batch's gradient is near the memory's.

        Returns:
            The highest cosine of each example's gradient, float32 [n] (`FIRST_COSINE` where the
            memory is empty; 1 where no score is needed), and that of the batch's, float32 scalar.
        """
        form = [tf.TensorSpec(v.shape, v.dtype) for v in self.trainable_variables]
        known = KnownGradients.of(
            stateless.map_groups(self, drawn, self.memory_batch_size, list, form),
            tf.reduce_any(tf.reshape(drawn.weights, [-1, self.memory_batch_size]) > 0, axis=1),
        )

        def nearest(size: int | tf.Tensor) -> tf.Tensor:
            scalar = tf.TensorSpec((), tf.float32)
            return stateless.map_groups(self, batch, size, known.highest_cosine, scalar)

        ours = nearest(tf.shape(batch.labels)[0])[0]
        return tf.cond(
            room | (ours < 0), lambda: nearest(1), lambda: tf.ones_like(batch.weights)
        ), ours


class KnownGradients(NamedTuple):
    """Gradients that others are compared with.

    Attributes:
        gradients: A tensor per variable, [known gradients, ...].
        norms: [known gradients].
        counted: bool [known gradients], which of them count.
    """

    gradients: list[tf.Tensor]
    norms: tf.Tensor
    counted: tf.Tensor

    @classmethod
    def of(cls, gradients: list[tf.Tensor], counted: tf.Tensor) -> "KnownGradients":
        """Gradients with their norms."""
        dtype = accumulation_dtype(gradients)
        rows = [
            tf.reshape(tf.cast(part, dtype), [-1, part.shape[1:].num_elements()])
            for part in gradients
        ]
        squares = tf.add_n([tf.reduce_sum(tf.square(part), axis=1) for part in rows])
        return cls(rows, tf.sqrt(squares), counted)

    def highest_cosine(self, gradient: list[tf.Tensor]) -> tf.Tensor:
        """The highest cosine with those that count, float32 scalar; `FIRST_COSINE` if none does.

        Args:
            gradient: A tensor per variable.
        """
        dtype = self.norms.dtype
        flat = [tf.reshape(tf.cast(part, dtype), [-1]) for part in gradient]
        pairs = zip(self.gradients, flat, strict=True)
        products = tf.add_n([tf.linalg.matvec(rows, part) for rows, part in pairs])
        norms = tf.sqrt(squared_norm(gradient)) * self.norms
        cosines = tf.cast(tf.math.divide_no_nan(products, norms), tf.float32)
        best = tf.reduce_max(tf.where(self.counted, cosines, -1.0))
        return tf.where(tf.reduce_any(self.counted), best, FIRST_COSINE)
