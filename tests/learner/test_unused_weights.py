"""A weight that no loss depends on stays as it is, and the others are trained."""

import keras
import numpy as np
import pytest

import nccl_tf
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches


class Spare(keras.layers.Layer):
    """Has a weight that it does not use."""

    def build(self, shape):
        self.spare = self.add_weight(shape=(3,), initializer="ones", name="spare")

    def call(self, inputs):
        return inputs


def learner(name: str) -> nccl_tf.Learner:
    layers = [
        keras.Input(IMAGE_SHAPE),
        keras.layers.Flatten(),
        Spare(),
        keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(0)),
    ]
    network = keras.Sequential(layers)
    if name == "ewc":
        return nccl_tf.EWC(network)
    memory = nccl_tf.RingMemory(2, TASK_CLASSES, IMAGE_SHAPE)
    return nccl_tf.NCCL(network, memory, memory_batch_size=4)


@pytest.mark.parametrize("name", ["ewc", "nccl_ring"])
def test_a_weight_that_nothing_depends_on(name):
    model = learner(name)
    model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
    before = [np.copy(value) for value in model.network.get_weights()]
    for task in range(2):
        model.fit(tiny_batches(task, count=10), task_id=task, verbose=0)
    after = model.network.get_weights()
    same = [np.array_equal(one, two) for one, two in zip(before, after, strict=True)]
    assert same == [True, False, False] and np.isfinite(after[1]).all()
