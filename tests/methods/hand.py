"""What the hand-computed steps share: a softmax regression in NumPy and a fixed memory."""

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.ring import RingMemory

ALPHA = 0.25  # exact in float32, in which Keras keeps the learning rate
RNG = np.random.default_rng(5)
WEIGHTS = RNG.normal(size=(4, 3))
STREAM = RNG.normal(size=(2, 2, 2, 1)), np.array([0, 2])
MEMORY = RNG.normal(size=(3, 2, 2, 1)), np.array([1, 0, 1])


class FixedMemory(RingMemory):
    """Always reads the same examples, and keeps nothing."""

    is_allocated = True
    task_classes = None
    reads_open_task = True

    def __init__(self, images, labels):
        Memory.__init__(self, len(labels))
        self.held = Batch(
            tf.constant(images),
            tf.constant(labels, tf.int64),
            tf.zeros(len(labels), tf.int64),
            tf.ones(len(labels)),
        )

    @property
    def specs(self):
        return self.held

    def read(self, count):
        assert count == len(self.held.labels)
        return self.held

    def checked(self, batch):
        return batch

    def write(self, batch):
        pass

    def close_task(self, task_id):
        pass


def network() -> keras.Model:
    """images [n, 2, 2, 1] -> logits images.reshape(n, 4) @ WEIGHTS, in float64."""
    inputs = keras.Input((2, 2, 1), dtype="float64")
    flat = keras.layers.Flatten(dtype="float64")(inputs)
    outputs = keras.layers.Dense(3, use_bias=False, dtype="float64")(flat)
    model = keras.Model(inputs, outputs)
    model.set_weights([WEIGHTS])
    return model


def gradient(images, labels, weights=WEIGHTS) -> np.ndarray:
    """Gradient of the mean softmax cross-entropy: X^T (softmax(X W) - onehot) / n."""
    flat = images.reshape(len(labels), 4)
    logits = flat @ weights
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return flat.T @ p / len(labels)


def loss(images, labels, weights=WEIGHTS) -> float:
    """The mean softmax cross-entropy."""
    logits = images.reshape(len(labels), 4) @ weights
    chosen = logits[np.arange(len(labels)), labels]
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen))


def stream() -> tf.data.Dataset:
    """STREAM as one batch; as plain arrays, Keras would make float32 of it."""
    images, labels = STREAM
    return tf.data.Dataset.from_tensors((images, labels.astype(np.int64)))


def one_step(learner, in_graph: bool = False) -> np.ndarray:
    """The weights after one `fit` step on STREAM, by default without a graph, which takes long."""
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=not in_graph)
    learner.fit(stream(), verbose=0)
    return learner.network.get_weights()[0]
