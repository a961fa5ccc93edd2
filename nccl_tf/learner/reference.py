"""The whole step of a replay method in one Keras `train_step`, to read, and to hold others to."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch, as_batch
from nccl_tf.memories.base import Memory
from nccl_tf.step_sizes import StepSizes

Rule = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], StepSizes]
"""(Lambda, |f_I|^2, |g_J|^2, alpha) -> alpha_H and beta_H, such as `step_sizes.nccl`."""


class ReferenceReplay(keras.Model):
    """x+ = x - alpha_H f_I - beta_H g_J with a single head and plain SGD (Han et al., section 5.2).

    It has nothing that makes `ReplayGradientLearner` fast, general or safe: no stacks, no rows, no
    heads, no replicas, no loss scaling, and a step that is not finite is taken. Tests hold NCCL,
    A-GEM and ER to it.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring or a reservoir; `memory.close_task(k)` has to be called between tasks.
        rule: From the scalars of a step to its step sizes.
        memory_batch_size: Examples drawn from the memory in a step.

    Example:
        >>> import functools, keras, nccl_tf
        >>> from nccl_tf.learner.reference import ReferenceReplay
        >>> rule = functools.partial(nccl_tf.step_sizes.agem)
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> memory = nccl_tf.ReservoirMemory(200, (28, 28, 1))
        >>> model = ReferenceReplay(network, memory, lambda l, f, g, alpha: rule(l, f, alpha))
        >>> model.compile(keras.optimizers.SGD(0.1))
    """

    def __init__(
        self, network: keras.Model, memory: Memory, rule: Rule, memory_batch_size: int = 10
    ):
        super().__init__()
        self.network, self.memory, self.rule = network, memory, rule
        self.memory_batch_size = memory_batch_size
        self.task = self.add_weight(name="task", shape=(), dtype="int32", trainable=False)
        self.built = True

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Take one step on a batch `(x, labels)` or `(x, labels, weights)`."""
        batch, replay = as_batch(data, self.task.value), self.memory.read(self.memory_batch_size)
        with tf.GradientTape() as memory_tape, tf.GradientTape() as stream_tape:
            memory_loss = self._mean_loss(replay)
            stream_loss = self._mean_loss(batch)
        variables = self.network.trainable_variables
        f = memory_tape.gradient(memory_loss, variables)
        g = stream_tape.gradient(stream_loss, variables)
        all_f = tf.concat([tf.reshape(gradient, [-1]) for gradient in f], axis=0)
        all_g = tf.concat([tf.reshape(gradient, [-1]) for gradient in g], axis=0)
        lambda_ = tf.tensordot(all_f, all_g, 1)
        squared_norms = tf.tensordot(all_f, all_f, 1), tf.tensordot(all_g, all_g, 1)
        alpha = tf.cast(self.optimizer.learning_rate, lambda_.dtype)
        sizes = self.rule(lambda_, *squared_norms, alpha)
        # Where the memory has nothing to read, a step is plain SGD on the stream.
        replays = tf.reduce_any(replay.weights > 0)
        alpha_h = tf.where(replays, sizes.alpha_h, 0.0)
        beta_h = tf.where(replays, sizes.beta_h, alpha)
        for variable, f_i, g_j in zip(variables, f, g, strict=True):
            variable.assign_sub(alpha_h * f_i + beta_h * g_j)
        self.memory.write(batch)
        return {"loss": stream_loss, "alpha_h": alpha_h, "beta_h": beta_h}

    def _mean_loss(self, batch: Batch) -> tf.Tensor:
        logits = self.network(batch.inputs, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits)
        weights = tf.cast(batch.weights, losses.dtype)
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))
