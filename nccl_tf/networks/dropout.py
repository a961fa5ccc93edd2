"""Dropout whose draws are part of the model's state."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="nccl_tf")
class CountedDropout(keras.layers.Layer):
    """Sets each entry to 0 with probability `rate` in training, and scales the others up.

    Keras's Dropout draws other numbers under XLA than without, and its state is not saved with the
    model. Here a draw is given by the seed and a counter, which is a weight: a model that is saved
    and loaded goes on with the draws that would have come.

    Args:
        rate: Probability in [0, 1); what is kept is divided by 1 - rate.
        seed: Seed of the draws.
    """

    def __init__(self, rate: float, seed: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate = float(rate)
        self.seed = int(seed)
        self.drops = True
        self.draws = self.add_weight(
            name="draws", shape=(), dtype="int64", initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """The inputs in evaluation; in training the inputs with entries dropped, same shape."""
        if not (training and self.drops):
            return inputs
        self.draws.assign(self.draws.value + 1)
        seed = tf.stack([tf.constant(self.seed, tf.int64), tf.identity(self.draws.value)])
        # Whole numbers are the same with and without XLA.
        bits = tf.random.stateless_uniform(
            tf.shape(inputs), seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
        )
        kept = bits >= tf.constant(round(self.rate * 2**32), tf.uint32)
        return tf.where(kept, inputs / tf.constant(1 - self.rate, inputs.dtype), 0)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The shape of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments, for saving."""
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@contextmanager
def without_dropout(network: keras.Model) -> Iterator[None]:
    """Graphs that are traced here train the network without its `CountedDropout` layers."""
    layers = [layer for layer in network.layers if isinstance(layer, CountedDropout)]
    for layer in layers:
        layer.drops = False
    try:
        yield
    finally:
        for layer in layers:
            layer.drops = True
