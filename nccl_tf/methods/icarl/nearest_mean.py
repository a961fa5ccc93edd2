"""Herding, and classification by the nearest mean of exemplars (Rebuffi et al., CVPR 2017)."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import take_rows
from nccl_tf.errors import UserError
from nccl_tf.learner.heads import at_least_float32


def herd(features: np.ndarray, count: int) -> np.ndarray:
    """Choose examples whose running mean stays near the mean of all (algorithm 4 of the paper).

    p_j = argmin_x |mu - (phi(x) + sum_{i<j} phi(p_i)) / j|, without repetition.

    Args:
        features: [n, d], of unit length.
        count: Number of examples wanted.

    Returns:
        int [min(count, n)]: their indices, in the order of choice, so that a prefix is the choice
        of fewer.
    """
    mean, total = features.mean(axis=0), np.zeros_like(features[0])
    free = np.ones(len(features), bool)
    chosen = []
    for j in range(1, min(count, len(features)) + 1):
        distances = np.linalg.norm(mean - (features + total) / j, axis=1)
        best = int(np.argmin(np.where(free, distances, np.inf)))
        chosen.append(best)
        free[best] = False
        total += features[best]
    return np.array(chosen, np.int64)


def normalized(features: tf.Tensor) -> tf.Tensor:
    """Features [n, d] of unit length; those of length 0 stay 0."""
    norms = tf.norm(features, axis=1, keepdims=True)
    return tf.math.divide_no_nan(features, norms)


def squared_distances(features: tf.Tensor, means: tf.Tensor) -> tf.Tensor:
    """|phi - mu_c|^2 for features [n, d] and means [classes, d]: [n, classes]."""
    products = tf.matmul(features, means, transpose_b=True)
    squares = tf.reduce_sum(tf.square(features), axis=1)[:, None]
    return squares - 2 * products + tf.reduce_sum(tf.square(means), axis=1)[None, :]


def features_and_logits(network: keras.Model) -> keras.Model:
    """A model, on the same weights, that returns (features, logits) of inputs.

    Features are what the last `keras.layers.Dense` of the network receives.

    Raises:
        UserError: The network is not made of layers, or no dense layer is among them.
    """
    dense = [layer for layer in network.layers if isinstance(layer, keras.layers.Dense)]
    if not dense or not getattr(network, "inputs", None):
        raise UserError(
            f"received the network {network.name!r}, which has no dense layer of its own; iCaRL "
            "takes its features before the last one: pass a Sequential or functional model that "
            "ends in a keras.layers.Dense"
        )
    # Several inputs may have names, which the model has to know.
    inputs = network.input if len(network.inputs) > 1 else network.inputs
    return keras.Model(inputs, [dense[-1].input, network.outputs[0]])


def in_parts(function: Callable[[Any], Any], inputs: Any, size: int = 500) -> np.ndarray:
    """`function` of inputs [n, ...], in parts of one shape: the last one repeats its inputs.

    Args:
        function: From inputs [size, ...] to a tensor [size, ...].
        inputs: Any number of inputs; an array, or a structure of arrays.
        size: Images in a part.
    """
    results = []
    count = len(tf.nest.flatten(inputs)[0])
    for start in range(0, count, size):
        rows = np.arange(start, min(start + size, count))
        part = take_rows(inputs, np.resize(rows, size))
        results.append(function(tf.nest.map_structure(tf.constant, part))[: len(rows)])
    return np.concatenate(results)


def feature_dtype(network: keras.Model) -> str:
    """ "float64" for a network in float64, else "float32"."""
    return at_least_float32(tf.zeros((), network.outputs[0].dtype)).dtype.name
