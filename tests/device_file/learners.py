"""Small learners that go to a device, and a device."""

import keras
import numpy as np

import nccl_tf
from nccl_tf.device_file.runtime import interpreter

SHAPE = (8, 8, 1)
TASKS = [[0, 1], [2, 3], [4, 5]]
BATCH = 10


def network(kind="mlp"):
    """A network for six classes: "mlp", "conv", or "bn" with batch normalisation and pooling."""
    layers = {
        "mlp": [keras.layers.Flatten(), keras.layers.Dense(16, "relu")],
        "conv": [
            keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
        ],
        "bn": [
            keras.layers.Conv2D(4, 3, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
        ],
    }[kind]
    begin = [keras.Input(SHAPE, dtype="uint8"), keras.layers.Rescaling(1 / 255)]
    return keras.Sequential([*begin, *layers, keras.layers.Dense(6)])


def memory(kind, **arguments):
    """A memory of 20 slots, or four for each class of a ring."""
    if kind == "ring":
        return nccl_tf.RingMemory(4, TASKS, SHAPE, **arguments)
    if kind == "balanced":
        return nccl_tf.BalancedMemory(20, TASKS, SHAPE, **arguments)
    return nccl_tf.ReservoirMemory(20, SHAPE, **arguments)


def compiled(learner, optimizer=None, **arguments):
    learner.compile(optimizer or keras.optimizers.SGD(0.05), **arguments)
    return learner


def er(kind="mlp", memory_kind="reservoir", optimizer=None, **arguments):
    """A learner with experience replay that has not learned."""
    learner = nccl_tf.ExperienceReplay(network(kind), memory(memory_kind), **arguments)
    return compiled(learner, optimizer)


def examples(task, count=BATCH, seed=0):
    """Learnable images of a task's two classes, and their labels."""
    random = np.random.default_rng((seed, task))
    labels = random.choice(TASKS[task], count).astype(np.int32)
    images = random.integers(0, 120, (count, *SHAPE), dtype=np.uint8)
    images.reshape(count, -1)[np.arange(count), labels] = 255
    return images, labels


class Device:
    """A file in LiteRT's interpreter.

    Args:
        path: The file.
    """

    def __init__(self, path):
        self._interpreter = interpreter(path.read_bytes())
        names = self._interpreter.get_signature_list()
        self.signatures = {name: self._interpreter.get_signature_runner(name) for name in names}

    def __call__(self, name, **columns):
        return self.signatures[name](**columns)

    def train(self, images, labels, weights=None):
        """A step; returns what it returns."""
        weights = np.ones(len(labels), np.float32) if weights is None else weights
        return self("train", x=images, y=labels, weights=weights)

    @property
    def state(self):
        return self("save")["state"]
