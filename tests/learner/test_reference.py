"""Every learner against the whole step in one `train_step`, in float64 over 200 steps."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf import AGEM, NCCL, ExperienceReplay, ReservoirMemory, RingMemory, step_sizes
from nccl_tf.batch import as_batch
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches

ALPHA = 0.125  # exact in float32


class ReferenceReplay(keras.Model):
    """x+ = x - alpha_H f_I - beta_H g_J with a single head and plain SGD (Han et al., section 5.2).

    It has no rows, heads, replicas or loss scaling, and takes a step that is not finite.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring or a reservoir; `memory.close_task(k)` has to be called between tasks.
        rule: (Lambda, |f_I|^2, |g_J|^2, alpha) -> alpha_H and beta_H.
        memory_batch_size: Examples drawn from the memory in a step.
    """

    def __init__(self, network: keras.Model, memory, rule, memory_batch_size: int = 10):
        super().__init__()
        self.network, self.memory, self.rule = network, memory, rule
        self.memory_batch_size = memory_batch_size
        self.task = self.add_weight(name="task", shape=(), dtype="int32", trainable=False)
        self.built = True

    def train_step(self, data):
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

    def _mean_loss(self, batch):
        logits = self.network(batch.inputs, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits)
        weights = tf.cast(batch.weights, losses.dtype)
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def network() -> keras.Model:
    def dense(units, seed, **kwargs):
        kernel = keras.initializers.GlorotUniform(seed)
        return keras.layers.Dense(units, kernel_initializer=kernel, dtype="float64", **kwargs)

    inputs = keras.Input(IMAGE_SHAPE, dtype="uint8")
    x = keras.layers.Rescaling(1 / 255, dtype="float64")(inputs)
    x = dense(8, 1, activation="tanh")(keras.layers.Flatten(dtype="float64")(x))
    return keras.Model(inputs, dense(4, 2)(x))


def memories():
    return {
        "ring": RingMemory(2, TASK_CLASSES, IMAGE_SHAPE, seed=5),
        "reservoir": ReservoirMemory(7, IMAGE_SHAPE, seed=5),
    }


def nccl(lambda_, f, g, alpha):
    return step_sizes.nccl(lambda_, f, g, alpha, tf.constant(1.0, alpha.dtype), 0.01)


def sum_of_means(lambda_, f, g, alpha):
    one = tf.ones_like(alpha)
    return step_sizes.joint(lambda_, alpha, one, one)


METHODS = {
    "nccl": (NCCL, {"delta": 0.01}, nccl),
    "nccl, two tapes": (NCCL, {"delta": 0.01, "gradients": "two_tapes"}, nccl),
    "agem": (AGEM, {}, lambda lambda_, f, g, alpha: step_sizes.agem(lambda_, f, alpha)),
    "er": (
        ExperienceReplay, {"er_weighting": "sum_of_means", "batch_norm": "separate"}, sum_of_means,
    ),
}  # fmt: skip


# Every rule and both memories; which memory it is, no rule knows.
USUAL = {("nccl", "ring"), ("er", "reservoir")}

PAIRS = [
    pytest.param(*pair, marks=[] if pair in USUAL else pytest.mark.nightly)
    for pair in itertools.product(METHODS, ("ring", "reservoir"))
]


@pytest.mark.parametrize(("name", "memory"), PAIRS)
def test_the_engine_is_the_reference(name, memory):
    method, arguments, rule = METHODS[name]
    reference = ReferenceReplay(network(), memories()[memory], rule, memory_batch_size=4)
    learner = method(network(), memories()[memory], memory_batch_size=4, **arguments)
    for model in (reference, learner):
        model.compile(keras.optimizers.SGD(ALPHA))
    for task in (0, 1):
        batches = tiny_batches(task, count=500)
        reference.task.assign(task)
        reference.fit(batches, verbose=0, shuffle=False)
        reference.memory.close_task(task)
        learner.fit(batches, verbose=0)
    assert int(learner.optimizer.iterations) == 200
    for left, right in zip(
        learner.network.get_weights(), reference.network.get_weights(), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-9)
    for left, right in zip(learner.memory.variables, reference.memory.variables, strict=True):
        np.testing.assert_array_equal(left, right)
