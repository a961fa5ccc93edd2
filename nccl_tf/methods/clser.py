"""CLS-ER (Arani, Sarfraz and Zonooz, ICLR 2022, "Learning fast, learning slow: a general continual
learning method based on complementary learning system")."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.learner.arguments import OwnBatchNormArguments
from nccl_tf.learner.growth import Growth
from nccl_tf.learner.options.dark_replay import COLUMN, logit_distances
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Logs, ReplayLogits, Step
from nccl_tf.learner.task_model import weighted_mean
from nccl_tf.memories.base import Memory
from nccl_tf.methods.registry import get_method
from nccl_tf.rng import apart, uniform

TARGET = "target"  # the memory batch's column of logits that the trained network is held to
_NUMBERS = ("clser_weight", "stable_decay", "plastic_decay", "stable_rate", "plastic_rate")


@keras.saving.register_keras_serializable(package="nccl_tf")
class CLSER(ReplayLearner):
    r"""Replay held to the better of two averages of the weights, of which the slow one predicts.

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

    default_loss_because: ClassVar[str] = "compares the probabilities of labels"
    log_names: ClassVar[tuple[str, ...]] = ("loss", "memory_loss", "consistency")
    fast_paths = ("deferred_logs", "dense")
    refuses = get_method("clser").refuses

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
        **kwargs: Unpack[OwnBatchNormArguments],
    ):
        super().__init__(network, memory, batch_norm=batch_norm, **kwargs)
        row = get_method("clser")
        self.clser_weight = float(row.check("clser_weight", clser_weight))
        self.stable_decay = float(row.check("stable_decay", stable_decay))
        self.plastic_decay = float(row.check("plastic_decay", plastic_decay))
        self.stable_rate = float(row.check("stable_rate", stable_rate))
        self.plastic_rate = float(row.check("plastic_rate", plastic_rate))
        self.stable = AveragedNetwork(network, self._copies("stable"))
        self.plastic = AveragedNetwork(network, self._copies("plastic"))
        self.updates = self._state("updates", (), "int64", 0)

    def _copies(self, name: str) -> Any:
        return lambda i, shape, dtype: self._state(f"{name}_{i}", shape, dtype, 0)

    def on_task_begin(self, task_id: int) -> None:
        super().on_task_begin(task_id)
        if not int(self.updates.numpy()):  # the network may have other weights than when built
            self.stable.start()
            self.plastic.start()

    def grow_state(self, growth: Growth) -> None:
        super().grow_state(growth)
        self.stable.grow(growth)
        self.plastic.grow(growth)

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        """Logits [n, classes] with masked classes at -1e9: at test those of the stable network."""
        if training:
            return super().call(inputs, training=True)
        return self.stable.run(lambda: super(CLSER, self).call(inputs, training=False))[0]

    def learn(self, batch: Batch, *replays: Batch) -> Step:
        if not replays:
            return super().learn(batch)
        (replay,) = replays
        training = self.batch_norm != "frozen"
        stable, passed_stable = self.stable.run(lambda: self.raw_logits(replay, training))
        plastic, passed_plastic = self.plastic.run(lambda: self.raw_logits(replay, training))
        better = self._sureness(stable, replay) > self._sureness(plastic, replay)
        target = tf.where(better[:, None], stable, plastic)
        replay = replay._replace(extras={**replay.extras, TARGET: target})
        return super().learn(batch, replay)._replace(state=(passed_stable, passed_plastic))

    def _sureness(self, logits: tf.Tensor, replay: Batch) -> tf.Tensor:
        """The probability of each example's label, [n]."""
        probabilities = tf.nn.softmax(self.masked(logits, replay))
        return tf.gather(probabilities, replay.labels, batch_dims=1)

    def replay_loss(
        self, logits: ReplayLogits, batch: Batch, *replays: Batch
    ) -> tuple[tf.Tensor, Logs]:
        loss, logs = super().replay_loss(logits, batch, *replays)
        (now,), (replay,) = logits.memory, replays
        held = replay._replace(extras={COLUMN: replay.extras[TARGET]})
        distances = logit_distances(now.raw, held, self.heads)
        consistency = weighted_mean(distances, replay.weights)
        return loss + self.clser_weight * consistency, {**logs, "consistency": consistency}

    def apply_step(self, step: Step) -> None:
        super().apply_step(step)
        count = self.updates.value.assign_add(1)
        draws = uniform(apart(self.seed, count), 2)
        most = 1 - 1 / (tf.cast(count, tf.float64) + 1)
        passed = step.state or ((), ())
        stable = tf.where(draws[0] <= self.stable_rate, tf.minimum(most, self.stable_decay), 1)
        plastic = tf.where(draws[1] <= self.plastic_rate, tf.minimum(most, self.plastic_decay), 1)
        self.stable.follow(stable, passed[0])
        self.plastic.follow(plastic, passed[1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **{name: getattr(self, name) for name in _NUMBERS}}


class AveragedNetwork:
    """Copies of a network's variables, on which the network can be run.

    Trainable ones are averages over steps. The others, such as the moving averages of batch
    normalisation, belong to the average alone: its own passes in training move them.

    It is not a Keras object, so a model that holds one does not track the variables twice.

    Args:
        network: The network; at first the copies are equal to it.
        make: Makes a variable of zeros, from a number, a shape and a dtype.
    """

    def __init__(self, network: keras.Model, make: Callable[..., keras.Variable]):
        self.network = network
        self.copies = [make(i, v.shape, v.dtype) for i, v in enumerate(network.variables)]
        self.start()

    def start(self) -> None:
        """Take the values of the network as they are."""
        for variable, copy in self._pairs():
            copy.assign(variable.value)

    def grow(self, growth: Growth) -> None:
        """Follow a head that has grown, with the new weights as they are."""
        growth.per_weight(self.copies, self.network.variables, fill=None)

    def in_place(self) -> keras.StatelessScope:
        """A scope in which the network has the values of the copies; it assigns nothing."""
        return keras.StatelessScope([(v, tf.convert_to_tensor(c.value)) for v, c in self._pairs()])

    def run(self, forward: Callable[[], tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """What a forward pass makes.

        Args:
            forward: Runs the network.

        Returns:
            What it returns, and what the copies become by the pass itself, in their order.
        """
        with self.in_place() as scope:
            logits = forward()
        values = [scope.get_current_value(variable) for variable in self.network.variables]
        return logits, [tf.convert_to_tensor(value) for value in values]

    def follow(self, keep: tf.Tensor, passed: Sequence[tf.Tensor]) -> None:
        """copy <- keep copy + (1 - keep) variable for what is trainable.

        Args:
            keep: Scalar in [0, 1].
            passed: What the copies became in this step's pass, for all else; empty without one.
        """
        for i, (variable, copy) in enumerate(self._pairs()):
            if variable.trainable:
                share = tf.cast(keep, copy.dtype)
                copy.assign(share * copy.value + (1 - share) * variable.value)
            elif passed:
                copy.assign(passed[i])

    def _pairs(self) -> list[tuple[keras.Variable, keras.Variable]]:
        return list(zip(self.network.variables, self.copies, strict=True))
