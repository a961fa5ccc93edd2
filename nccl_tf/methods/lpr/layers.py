"""The layers that LPR preconditions, and the inputs of their weights."""

import math
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.keras_private import calls_of

_PRECONDITIONED = (keras.layers.Dense, keras.layers.Conv2D, keras.layers.BatchNormalization)


def preconditioned_layers(network: keras.Model) -> list[tuple[Any, keras.KerasTensor]]:
    """The preconditioned layers of a network, each with its input.

    These are dense layers, convolutions of images and batch normalisation of images with a scale,
    as in the authors' code.

    Raises:
        UserError: What such a layer receives cannot be known, or its weights have other places.
    """
    if not getattr(network, "inputs", None):
        raise _refusal(network, "is no functional or Sequential model, whose layers it could see")
    nodes = calls_of(network)
    found = []
    for layer in network.layers:
        if isinstance(layer, keras.Model) and layer.trainable_variables:
            raise _refusal(network, f"has the model {layer.name!r} inside, with layers of its own")
        if not isinstance(layer, _PRECONDITIONED):
            continue
        uses = [node for node in nodes if node.operation is layer]
        if len(uses) != 1:
            raise _refusal(
                network, f"uses its layer {layer.name!r} {len(uses)} times, and not once"
            )
        (received,) = uses[0].input_tensors
        rank = len(received.shape)
        if isinstance(layer, keras.layers.BatchNormalization) and not (layer.scale and rank == 4):
            continue
        if isinstance(layer, keras.layers.Dense) and rank != 2:
            raise _refusal(network, f"has a dense layer, {layer.name!r}, of more than one vector")
        if isinstance(layer, keras.layers.Conv2D) and layer.groups != 1:
            raise _refusal(network, f"has a convolution, {layer.name!r}, in groups of channels")
        if getattr(layer, "data_format", "channels_last") != "channels_last":
            raise _refusal(network, f"has a convolution, {layer.name!r}, with channels first")
        found.append((layer, received))
    if not found:
        raise _refusal(network, "has neither a dense layer nor a convolution")
    return found


def _refusal(network: keras.Model, what: str) -> UserError:
    return UserError(
        f"received the network {network.name!r}, which {what}: LPR takes gradients layer by layer; "
        "build it of layers that are each used once, or use er_reservoir"
    )


def seen_by_weights(layer: Any, inputs: tf.Tensor) -> tf.Tensor:
    """Z of a layer: the inputs of its weights, at each place of each example.

    A dense layer has one place, which sees the inputs; a convolution sees a patch at each of its
    places, in the order of its kernel's entries. In batch normalisation each channel is for itself
    and sees (x - m)/(v + e) at each pixel, with moving mean m and moving variance v. As in the
    authors' code v is not under a root there. A bias sees a 1.

    Args:
        layer: As `preconditioned_layers` finds it.
        inputs: What the layer receives, [n, ...].

    Returns:
        [n, places, entries], of batch normalisation [channels, n, places, entries].
    """
    count = tf.shape(inputs)[0]
    if isinstance(layer, keras.layers.BatchNormalization):
        mean, variance = layer.moving_mean.value, layer.moving_variance.value
        z = (inputs - tf.cast(mean, inputs.dtype)) / tf.cast(variance + layer.epsilon, inputs.dtype)
        z = tf.transpose(tf.reshape(z, [count, -1, inputs.shape[-1]]), [2, 0, 1])[..., None]
        biased = layer.center
    elif isinstance(layer, keras.layers.Conv2D):
        pairs = layer.kernel_size, layer.strides, layer.dilation_rate
        sides, steps, rates = ([1, *pair, 1] for pair in pairs)
        z = tf.image.extract_patches(inputs, sides, steps, rates, layer.padding.upper())
        z = tf.reshape(z, [count, -1, math.prod(layer.kernel.shape[:3])])
        biased = layer.use_bias
    else:
        z, biased = inputs[:, None], layer.use_bias
    return tf.concat([z, tf.ones_like(z[..., :1])], -1) if biased else z
