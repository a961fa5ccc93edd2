"""Masks on weights that never change (SupSup, Wortsman et al., 2020)."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.learner.heads import at_least_float32

_MASKED = (keras.layers.Dense, keras.layers.Conv2D)
_NORM = keras.layers.BatchNormalization


class MaskedNetwork:
    """A network that runs with masks on its kernels, and with given moving averages.

    Its weights are set for good: those of Dense and Conv2D layers to +-sqrt(2/fan_in) with the
    signs that they came with, biases to 0, batch norms to scale 1 and offset 0.

    Args:
        network: A Keras model of Dense, Conv2D and BatchNormalization layers and layers without
            weights, from inputs to one logit per class.

    Attributes:
        kernels: What masks apply to, in the order of the layers.
        statistics: Moving mean and variance of every batch norm.

    Raises:
        UserError: Another layer has weights.
    """

    def __init__(self, network: keras.Model):
        self._network = network
        _fix_weights(network)
        layers = list(_layers(network))
        norms = [layer for layer in layers if isinstance(layer, _NORM)]
        self.kernels = [layer.kernel for layer in layers if isinstance(layer, _MASKED)]
        self.statistics = [v for norm in norms for v in (norm.moving_mean, norm.moving_variance)]

    def trained(self, inputs: tf.Tensor, masks: Sequence[tf.Tensor]) -> tf.Tensor:
        """Logits [n, classes] as in training, which moves the moving averages.

        Args:
            inputs: [n, ...].
            masks: A factor of any real values for each kernel, of its shape.
        """
        with self._scope(masks) as scope:
            logits = self._network(inputs, training=True)
        for variable in self._network.non_trainable_variables:
            value = scope.get_current_value(variable)
            if value is not None and not any(variable is k for k in self.kernels):
                variable.assign(value)
        return logits

    def tested(self, inputs: tf.Tensor, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """Logits [n, classes] as at test, in float32 or better.

        Args:
            inputs: [n, ...].
            values: The masks, and the moving averages after them.
        """
        with self._scope(values):
            return at_least_float32(self._network(inputs, training=False))

    def _scope(self, values: Sequence[tf.Tensor]) -> keras.StatelessScope:
        masks, statistics = values[: len(self.kernels)], values[len(self.kernels) :]
        kernels = [
            (k, k.value * tf.cast(m, k.dtype)) for k, m in zip(self.kernels, masks, strict=True)
        ]
        return keras.StatelessScope([*kernels, *zip(self.statistics, statistics, strict=False)])


def top_mask(scores: tf.Tensor, count: int) -> tf.Tensor:
    """Where the `count` highest scores are: bool of the shape of `scores`.

    The threshold is bisected between the least and the highest score until as many lie above it,
    which costs a few passes in place of a sort. Scores equal to the threshold are all kept.
    """

    def unsettled(low: tf.Tensor, high: tf.Tensor, above_low: tf.Tensor) -> tf.Tensor:
        middle = low + (high - low) / 2
        return (above_low > count) & (low < middle) & (middle < high)

    def halve(low: tf.Tensor, high: tf.Tensor, above_low: tf.Tensor) -> Any:
        middle = low + (high - low) / 2
        above = tf.math.count_nonzero(scores >= middle)
        enough = above >= count
        return (
            tf.where(enough, middle, low),
            tf.where(enough, high, middle),
            tf.where(enough, above, above_low),
        )

    least, most = tf.reduce_min(scores), tf.reduce_max(scores)
    # From above the highest score, so that it can be the threshold itself.
    start = [least, most + (most - least), tf.size(scores, tf.int64)]
    return scores >= tf.while_loop(unsettled, halve, start)[0]


def draw_scores(seed: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Random scores of a kernel of this shape, uniform in +-1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(np.prod(shape[:-1]))
    return np.random.default_rng(seed).uniform(-bound, bound, shape)


def _layers(network: keras.Model) -> Iterator[keras.layers.Layer]:
    for layer in network.layers:
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
        else:
            yield layer


def _fix_weights(network: keras.Model) -> None:
    for layer in _layers(network):
        if isinstance(layer, _MASKED):
            constant = math.sqrt(2 / np.prod(layer.kernel.shape[:-1]))
            layer.kernel.assign(np.where(layer.kernel.numpy() < 0, -constant, constant))
            others = [(layer.bias, 0)]
        elif isinstance(layer, _NORM):
            others = [(layer.gamma, 1), (layer.beta, 0)]
        elif layer.trainable_variables:
            raise UserError(
                f"received a network with the layer {layer.name!r} of type "
                f"{type(layer).__name__}, which has weights: supsup masks those of Dense and "
                "Conv2D layers, and takes BatchNormalization and layers without weights beside them"
            )
        else:
            others = []
        for variable, value in others:
            if variable is not None:
                variable.assign(np.full(variable.shape, value))
    for variable in network.trainable_variables:
        variable.trainable = False
