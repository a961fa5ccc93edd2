"""Adapters for layers within a network, however deep."""

from collections.abc import Sequence

import keras

from nccl_tf.errors import UserError, checked_at_least
from nccl_tf.keras_private import layers_of


def enable_lora(
    network: keras.Model, rank: int = 4, names: Sequence[str] = ("query", "value")
) -> None:
    """Freeze a network but for adapters (LoRA) of the layers of some names.

    Biases of the adapted layers learn too, as after Keras's own `enable_lora` of a layer.

    Args:
        network: A Keras model without the head that shall learn.
        rank: Of the adapters.
        names: Of dense layers, convolutions or embeddings, such as those of attention in KerasHub.

    Raises:
        UserError: No layer that takes adapters has one of the names, one of them has adapters, or
            the rank is below 1.

    Example:

    ```py
    bottom, top = nccl_tf.cut(backbone, 9)
    nccl_tf.networks.enable_lora(top, rank=4)
    network = keras.Model(top.input, keras.layers.Dense(10)(top.output[:, 0]))
    ```
    """
    checked_at_least("rank", rank, 1)
    able = [layer for layer in layers_of(network) if hasattr(layer, "enable_lora")]
    adapted = [layer for layer in able if layer.name in names]
    if not adapted:
        found = ", ".join(sorted({layer.name for layer in able})[:8]) or "none"
        raise UserError(
            f"received names={tuple(names)!r}, of which no layer of {network.name!r} is that takes "
            f"adapters: expected some of {found}"
        )
    twice = [layer.name for layer in adapted if layer.lora_enabled]
    if twice:
        raise UserError(
            f"received a network whose layers {', '.join(sorted(set(twice))[:8])} have adapters: "
            "expected layers without; enable them once for each layer, or build the network again"
        )
    for layer in layers_of(network):
        layer.trainable = False
    for layer in adapted:
        layer.trainable = True
        layer.enable_lora(rank)
