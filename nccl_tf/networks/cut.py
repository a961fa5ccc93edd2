"""A vision transformer in two: what stays as it is, and what learns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from nccl_tf.errors import UserError


@dataclass(frozen=True)
class _Parts:
    """A backbone's parts.

    Args:
        embeddings: Layers from images to tokens, one after the other.
        blocks: Layers from tokens to tokens.
        norm: The layer after the last block.
    """

    embeddings: list[keras.layers.Layer]
    blocks: list[keras.layers.Layer]
    norm: keras.layers.Layer


def _dinov2(backbone: Any) -> _Parts:
    return _Parts([backbone.embeddings], backbone.encoder.layers, backbone.layernorm)


def _deit(backbone: Any) -> _Parts:
    encoder = backbone.get_layer("deit_encoder")
    embeddings = [backbone.get_layer("deit_patching_and_embedding")]
    return _Parts(embeddings, encoder.encoder_layers, encoder.layer_norm)


def _vit(backbone: Any) -> _Parts:
    encoder = backbone.get_layer("vit_encoder")
    embeddings = [backbone.get_layer("vit_patching_and_embedding"), encoder.dropout]
    return _Parts(embeddings, encoder.encoder_layers, encoder.layer_norm)


_FAMILIES: dict[str, Callable[[Any], _Parts]] = {
    "DINOV2Backbone": _dinov2, "DeiTBackbone": _deit, "ViTBackbone": _vit,
}  # fmt: skip


def cut(backbone: keras.Model, block: int) -> tuple[keras.Model, keras.Model]:
    """A vision transformer of KerasHub in two, so that a frozen bottom passes each image once.

    `stream.map(bottom.predict)` keeps its tokens, and a learner on `top` takes a step through the
    last blocks alone.

    Args:
        backbone: KerasHub's `ViTBackbone`, `DeiTBackbone` or `DINOV2Backbone`.
        block: Blocks in the bottom, from 0 to all but one.

    Returns:
        From images [n, height, width, channels] to tokens [n, tokens, width], by the layers of the
        backbone; and from these to what the backbone gives for the images, by layers of its own,
        with copies of the weights: what trains them leaves the backbone as it is. Token 0 is the
        class token.

    Raises:
        UserError: The backbone is another one, or has no such block.

    Example:

    ```py
    backbone = keras_hub.models.Backbone.from_preset("dinov2_small", image_shape=(112, 112, 3))
    bottom, top = nccl_tf.cut(backbone, 9)
    tokens = stream.map(lambda images: bottom.predict(images).astype("float16"))
    ```
    """
    family = type(backbone).__name__
    if family not in _FAMILIES:
        raise UserError(
            f"received a {family} as backbone, expected one of KerasHub's {', '.join(_FAMILIES)}: "
            "of another network build the two parts yourself, keras.Model(network.inputs, "
            "layer.output) and a keras.Model from there"
        )
    parts = _FAMILIES[family](backbone)
    count = len(parts.blocks)
    if isinstance(block, bool) or not isinstance(block, int) or not 0 <= block < count:
        raise UserError(
            f"received block={block!r}, expected a whole number from 0 to {count - 1}: "
            f"{family} {backbone.name!r} has {count} blocks, and the top keeps one at least"
        )
    images = keras.Input(backbone.image_shape, name="images")
    tokens = images
    for layer in parts.embeddings:
        tokens = layer(tokens)
    if block:
        tokens = _Blocks(parts.blocks[:block], name="blocks")(tokens)
    bottom = keras.Model(images, tokens, name=f"{backbone.name}_bottom")
    inputs = keras.Input(tokens.shape[1:], name="tokens")
    config = {**backbone.get_config(), "num_layers": count - block}
    last = LastBlocks(family, config, dtype=backbone.dtype_policy, name="last_blocks")
    top = keras.Model(inputs, last(inputs), name=f"{backbone.name}_top")
    for copy, layer in zip(last.parts, [*parts.blocks[block:], parts.norm], strict=True):
        copy.set_weights(layer.get_weights())
    return bottom, top


class _Blocks(keras.layers.Layer):
    """Blocks one after the other, some of which return attention scores beside their tokens."""

    def __init__(self, blocks: list[keras.layers.Layer], **kwargs: Any):
        super().__init__(**kwargs)
        self.blocks = blocks

    def call(self, tokens: Any, training: bool | None = None) -> Any:
        for block in self.blocks:
            outputs = block(tokens, training=training)
            tokens = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
        return tokens


@keras.saving.register_keras_serializable(package="nccl_tf")
class LastBlocks(_Blocks):
    """The last blocks of a vision transformer and the norm after them.

    Its configuration is that of a backbone of so many blocks: a block alone may have one that its
    own constructor refuses, and a file of it could not be loaded.

    Args:
        family: The backbone's class in KerasHub.
        config: Of a backbone with these blocks alone.
        kwargs: As for Keras layers.
    """

    def __init__(self, family: str, config: Mapping[str, Any], **kwargs: Any):
        import keras_hub

        parts_of = _FAMILIES[family]  # A file may name another class of KerasHub: none is made.
        made = getattr(keras_hub.models, family).from_config(dict(config))
        parts = parts_of(made)
        super().__init__(parts.blocks, **kwargs)
        self.norm = parts.norm
        self._made_of = {"family": family, "config": dict(config)}

    @property
    def parts(self) -> list[keras.layers.Layer]:
        """The blocks and the norm."""
        return [*self.blocks, self.norm]

    def call(self, tokens: Any, training: bool | None = None) -> Any:
        return self.norm(super().call(tokens, training=training))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._made_of}
