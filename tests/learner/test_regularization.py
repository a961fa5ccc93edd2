"""Losses of the network's own, of weights and of activities, are learned by every method."""

import keras
import numpy as np
import pytest

import nccl_tf
from tests.tiny import IMAGE_SHAPE, tiny_batches


class Cost(keras.layers.Layer):
    """Adds a loss in the dtype in which it computes."""

    def __init__(self, factor: float, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs):
        self.add_loss(self.factor * keras.ops.mean(keras.ops.square(inputs)))
        return inputs


def network(factor: float, dtype: str = "float32") -> keras.Model:
    glorot = [keras.initializers.GlorotUniform(seed) for seed in (1, 2)]
    layers = [
        keras.Input(IMAGE_SHAPE),
        keras.layers.Rescaling(1 / 255, dtype=dtype),
        keras.layers.Flatten(dtype=dtype),
        keras.layers.Dense(6, "relu", kernel_initializer=glorot[0], dtype=dtype),
        Cost(factor, dtype=dtype),
        keras.layers.Dense(4, kernel_initializer=glorot[1], dtype=dtype),
    ]
    return keras.Sequential(layers)


def reservoir():
    return nccl_tf.ReservoirMemory(12, IMAGE_SHAPE)


METHODS = {
    "bgd": nccl_tf.BGD,
    "lwf": nccl_tf.LwF,
    "nccl": lambda net: nccl_tf.NCCL(net, reservoir()),
    "mer": lambda net: nccl_tf.MER(net, reservoir()),
}


def trained(name: str, factor: float, dtype: str = "float32") -> np.ndarray:
    """The first kernel after two tasks."""
    learner = METHODS[name](network(factor, dtype))
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    for task in range(2):
        learner.fit(tiny_batches(task, 5), task_id=task, verbose=0)
    return learner.network.get_weights()[0]


@pytest.mark.parametrize("name", METHODS)
def test_a_loss_of_activities_is_learned(name):
    assert np.abs(trained(name, 0.0) - trained(name, 1.0)).max() > 1e-4


def test_in_half_precision_too():
    assert np.isfinite(trained("mer", 1.0, "mixed_bfloat16")).all()
