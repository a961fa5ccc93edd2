"""CLS-ER (Arani, Sarfraz and Zonooz, ICLR 2022, "Learning fast, learning slow: a general continual
learning method based on complementary learning system")."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.learner.columns import LOGITS
from nccl_tf.learner.copies import WeightCopy
from nccl_tf.learner.losses import weighted_mean
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Logs, ReplayLogits, Step
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.rows import clser as rows
from nccl_tf.rng import apart, uniform
from nccl_tf.variables import values_of

TARGET = "target"  # the memory batch's column of logits that the trained network is held to


@keras.saving.register_keras_serializable(package="nccl_tf")
class CLSER(ReplayLearner):
    r"""Replay with consistency to the better of two EMAs of the weights; the slow one predicts.

    The loss of a step is $\operatorname{CE}(J \cup I) + \lambda \operatorname{MSE}(h(I), z)$, with
    the mean cross-entropy of the stream batch $J$ and the memory batch $I$ together. For each
    memory example $z$ are the logits, before any mask and of the example's own head, of the stable
    network where that gives the label a higher probability, else of the plastic one. After step $n$
    (from 1) each of these two moves, with a probability $r$ of its own:
    $\theta \leftarrow d \theta + (1 - d) x$, $d = \min(1 - 1/(n + 1), \alpha)$.

    `evaluate`, `predict` and `accuracy` take the stable network, as the paper's results do; what a
    step logs is that of the trained one. As in the authors' code the averages normalise a memory
    batch by its own statistics and have moving averages of their own. There $h(I)$ is a pass of its
    own too; here it is a part of the joint one, which differs by batch normalisation alone.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A reservoir.
        clser_weight: $\lambda$.
        stable_decay: $\alpha$ of the stable network.
        plastic_decay: $\alpha$ of the plastic network.
        stable_rate: $r$ of the stable network.
        plastic_rate: $r$ of the plastic network.
        batch_norm: As for `ReplayLearner`, by default jointly.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: A number is out of range.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ReservoirMemory(200, (28, 28, 1))
        >>> learner = nccl_tf.CLSER(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "bounds its averages in float64, in which LiteRT computes nothing",
        "loss": "compares the probabilities of labels",
        **rows.CLSER.refuses,
    }
    log_names: ClassVar[tuple[str, ...]] = ("loss", "memory_loss", "consistency")

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        clser_weight: float = 0.1,
        stable_decay: float = 0.999,
        plastic_decay: float = 0.999,
        stable_rate: float = 0.7,
        plastic_rate: float = 0.9,
        batch_norm: str = "joint",
        **kwargs: Any,
    ):
        super().__init__(network, memory, batch_norm=batch_norm, **kwargs)
        self.clser_weight = clser_weight
        self.stable_decay = stable_decay
        self.plastic_decay = plastic_decay
        self.stable_rate = stable_rate
        self.plastic_rate = plastic_rate
        self.stable = WeightCopy(self.network, self.state, "stable")
        self.plastic = WeightCopy(self.network, self.state, "plastic")
        self.stable.take()
        self.plastic.take()
        self.updates = self.state("updates", (), "int64")

    def on_task_begin(self, task_id: int) -> None:
        # The network may have other weights than when it was built.
        is_first = tf.equal(self.updates.value, 0)
        self.stable.take(is_first)
        self.plastic.take(is_first)

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        """Logits [n, classes] with masked classes at -1e9: at test those of the stable network."""
        if training:
            return super().call(inputs, training=True)
        return self.stable.run(lambda: super(CLSER, self).call(inputs, training=False))[0]

    def serving_weights(self) -> Any:
        return self.stable.in_network()

    def learn(self, batch: Batch) -> Step:
        copies = self.stable.variables, self.plastic.variables
        return super().learn(batch)._replace(state=tuple(map(values_of, copies)))

    def replay(self, batch: Batch, *replays: Batch) -> Step:
        (replay,) = replays
        training = self.batch_norm != "frozen"
        stable, passed_stable = self.stable.run(lambda: self.raw_logits(replay, training))
        plastic, passed_plastic = self.plastic.run(lambda: self.raw_logits(replay, training))
        better = self._sureness(stable, replay) > self._sureness(plastic, replay)
        target = tf.where(better[:, None], stable, plastic)
        replay = replay._replace(extras={**replay.extras, TARGET: target})
        return super().replay(batch, replay)._replace(state=(passed_stable, passed_plastic))

    def _sureness(self, logits: tf.Tensor, replay: Batch) -> tf.Tensor:
        """The probability of each example's label, [n]."""
        probabilities = tf.nn.softmax(self.masked(logits, replay))
        return tf.gather(probabilities, replay.labels, batch_dims=1)

    def replay_loss(
        self, logits: ReplayLogits, batch: Batch, *replays: Batch
    ) -> tuple[tf.Tensor, Logs]:
        loss, logs = super().replay_loss(logits, batch, *replays)
        (now,), (replay,) = logits.memory, replays
        held = replay._replace(extras={**replay.extras, LOGITS: replay.extras[TARGET]})
        distances = self.logit_distances(now.raw, held)
        consistency = weighted_mean(distances, replay.weights)
        return loss + self.clser_weight * consistency, {**logs, "consistency": consistency}

    def apply_step(self, step: Step) -> None:
        super().apply_step(step)
        passed_stable, passed_plastic = step.state
        count = self.updates.value.assign_add(1)
        draws = uniform(apart(self.seed, count), 2)
        most = 1 - 1 / (tf.cast(count, tf.float64) + 1)
        stable = tf.where(draws[0] <= self.stable_rate, tf.minimum(most, self.stable_decay), 1)
        plastic = tf.where(draws[1] <= self.plastic_rate, tf.minimum(most, self.plastic_decay), 1)
        _move(self.stable, stable, passed_stable)
        _move(self.plastic, plastic, passed_plastic)


def _move(copy: WeightCopy, keep: tf.Tensor, passed: Sequence[tf.Tensor]) -> None:
    """Move an average: average <- keep average + (1 - keep) variable, where it is trainable.

    Args:
        copy: The average.
        keep: Scalar in [0, 1].
        passed: The values that this step's own pass gave all else, such as moving averages of batch
            normalisation; those that it has, in a step without one.
    """
    for i, (variable, average) in enumerate(zip(copy.originals, copy.variables, strict=True)):
        if variable.trainable:
            share = tf.cast(keep, average.dtype)
            average.assign(share * average.value + (1 - share) * variable.value)
        else:
            average.assign(passed[i])
