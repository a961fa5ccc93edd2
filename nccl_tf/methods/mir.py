"""Maximally interfered retrieval (Aljundi et al., NeurIPS 2019)."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner import stateless
from nccl_tf.learner.step import Step
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.rows import mir as rows
from nccl_tf.variables import values_of


@keras.saving.register_keras_serializable(package="nccl_tf")
class MIR(ExperienceReplay):
    r"""Replays those of C random memory examples whose loss the stream's step would raise most.

    With $\theta_v = \theta - \alpha g_J$, a candidate $z$ scores
    $s(z) = l(z; \theta_v) - l(z; \theta)$ (MI-1 of the paper); the highest scores are replayed:
    $x^+ = x - \alpha (f_I + g_J)$. The scores are taken with the batch-norm statistics of the
    candidates, or the moving averages where `batch_norm` is "frozen", the same at both weights.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A reservoir; the authors' has `exclude_current_task`, with which nothing is replayed
            in the first task.
        candidates: C, examples drawn to choose from; the memory's all where it holds fewer.
        er_weighting: As for `ExperienceReplay`.
        batch_norm: As for `ReplayLearner`.
        **kwargs: As for `ReplayLearner`; `memory_batch_size` is the number of examples replayed.

    Raises:
        UserError: There are fewer candidates than examples to replay.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ReservoirMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.MIR(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS

    def __init__(
        self,
        network: keras.Model,
        memory: ReservoirMemory,
        *,
        candidates: int = 50,
        er_weighting: str = "sum_of_means",
        batch_norm: str = "separate",
        **kwargs: Any,
    ):
        super().__init__(
            network, memory, er_weighting=er_weighting, batch_norm=batch_norm, **kwargs
        )
        self.candidates = candidates
        if self.candidates < self.memory_batch_size:
            raise UserError(
                f"received {candidates} candidates for a memory batch of {self.memory_batch_size}: "
                "expected at least as many; raise --candidates or lower --memory_batch_size"
            )

    def update(self, batch: Batch) -> Step:
        batch = self.memory.checked(batch)
        return self.replay_and_apply(batch, self.memory.read(self.candidates))

    def replay(self, batch: Batch, *replays: Batch) -> Step:
        return super().replay(batch, *(self.retrieve(batch, replay) for replay in replays))

    def retrieve(self, batch: Batch, candidates: Batch) -> Batch:
        """The `memory_batch_size` candidates of highest score, in the order they came in."""
        training = self.batch_norm != "frozen"
        ahead = stateless.virtual_step(self, batch, training)
        scores = stateless.losses(self, ahead, candidates, training)
        here = values_of(self.network.trainable_variables)
        scores -= stateless.losses(self, here, candidates, training)
        chosen = top_indices(scores, candidates.weights, self.memory_batch_size)
        return candidates.map(lambda part: tf.gather(part, chosen))


def top_indices(scores: tf.Tensor, weights: tf.Tensor, count: int) -> tf.Tensor:
    """The indices of the highest scores among the examples that are not padding, ascending.

    Args:
        scores: Floats [n].
        weights: float32 [n]; where fewer than `count` are above 0, padding is chosen too.
        count: Number of indices.

    Returns:
        int64 [count], distinct.
    """
    least = tf.constant(float("-inf"), scores.dtype)
    chosen = tf.math.top_k(tf.where(weights > 0, scores, least), count).indices
    return tf.sort(chosen)
