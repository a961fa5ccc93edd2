"""The two networks of the study in Keras, with the weights of their files."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from nccl_tf.errors import UserError
from studies.pretrained.weights import Arrays

SIDE = 112
"""Pixels of a side that images are resized to: half of what both networks were trained with."""

_BLOCKS = (
    # kernel, stride, expansion, inputs, outputs, repeats
    (3, 1, 1, 32, 16, 1), (3, 2, 6, 16, 24, 2), (5, 2, 6, 24, 40, 2), (3, 2, 6, 40, 80, 3),
    (5, 1, 6, 80, 112, 3), (5, 2, 6, 112, 192, 4), (3, 1, 6, 192, 320, 1),
)  # fmt: skip


def resized(scale: keras.layers.Layer) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Inputs uint8 [n, 32, 32, 3], and those images as a network takes them."""
    inputs = keras.Input((32, 32, 3), dtype="uint8")
    return inputs, scale(keras.layers.Resizing(SIDE, SIDE, interpolation="bicubic")(inputs))


def efficientnet_scale() -> keras.layers.Layer:
    """Scales pixels of 0 to 255 as EfficientNet-Lite does."""
    return keras.layers.Rescaling(1 / 128, -127 / 128)


def dinov2_scale() -> keras.layers.Layer:
    """Scales pixels of 0 to 255 by ImageNet's means and deviations."""
    mean, spread = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    scale = [1 / (255 * s) for s in spread]
    return keras.layers.Rescaling(scale, [-m / s for m, s in zip(mean, spread, strict=True)])


class _Taken:
    """Arrays by name, each for one layer."""

    def __init__(self, arrays: Arrays):
        self.left = dict(arrays)

    def take(self, name: str) -> np.ndarray:
        """The array of a name.

        Raises:
            UserError: There is none.
        """
        if name not in self.left:
            raise UserError(f"found no weights {name!r} in the file: it is of another network")
        return self.left.pop(name)

    def check_all_taken(self) -> None:
        """Raise UserError where arrays are left."""
        if self.left:
            raise UserError(
                f"received weights {min(self.left)!r}, which the network has no place for"
            )


def efficientnet_lite0(
    arrays: Arrays, side: int = SIDE, blocks: tuple = _BLOCKS
) -> tuple[keras.Model, keras.layers.Dense]:
    """EfficientNet-Lite0 up to its pooled features [n, 1280], and its head of 1,000 classes.

    Args:
        arrays: Its weights by PyTorch's names.
        side: Of the images.
        blocks: Its table.

    Raises:
        UserError: Weights are missing, left over or of another shape.
    """
    layers, weights = keras.layers, _Taken(arrays)
    inputs = keras.Input((side, side, 3))
    kernels: list[tuple[keras.layers.Layer, list[np.ndarray]]] = []

    def applied(layer: keras.layers.Layer, x: Any, values: list[np.ndarray]) -> Any:
        y = layer(x)
        found = [tuple(v.shape) for v in layer.weights]
        if found != [value.shape for value in values]:
            shapes = [value.shape for value in values]
            raise UserError(f"received weights of shapes {shapes}, where {layer.name} has {found}")
        kernels.append((layer, values))
        return y

    def conv(x: Any, name: str, width: int, side: int = 1, stride: int = 1) -> Any:
        layer = layers.Conv2D(width, side, stride, "same", use_bias=False)
        return applied(layer, x, [weights.take(f"{name}.weight").transpose(2, 3, 1, 0)])

    def depthwise(x: Any, name: str, side: int, stride: int) -> Any:
        layer = layers.DepthwiseConv2D(side, stride, "same", use_bias=False)
        return applied(layer, x, [weights.take(f"{name}.weight").transpose(2, 3, 0, 1)])

    def normalised(x: Any, name: str, activates: bool = True) -> Any:
        weights.left.pop(f"{name}.num_batches_tracked", None)
        values = [
            weights.take(f"{name}.{part}")
            for part in ("weight", "bias", "running_mean", "running_var")
        ]
        y = applied(layers.BatchNormalization(epsilon=1e-3), x, values)
        return layers.ReLU(6.0)(y) if activates else y

    x = normalised(conv(inputs, "_conv_stem", 32, 3, 2), "_bn0")
    number = 0
    for kernel, stride, expansion, wide_in, wide_out, repeats in blocks:
        for repeat in range(repeats):
            name = f"_blocks.{number}."
            number += 1
            width, step = (wide_out, 1) if repeat else (wide_in, stride)
            y = x
            if expansion != 1:
                y = normalised(conv(y, f"{name}_expand_conv", width * expansion), f"{name}_bn0")
            y = normalised(depthwise(y, f"{name}_depthwise_conv", kernel, step), f"{name}_bn1")
            y = normalised(conv(y, f"{name}_project_conv", wide_out), f"{name}_bn2", False)
            x = layers.Add()([x, y]) if step == 1 and width == wide_out else y
    x = normalised(conv(x, "_conv_head", 1280), "_bn1")
    features = keras.Model(inputs, layers.GlobalAveragePooling2D()(x), name="efficientnet_lite0")
    head = layers.Dense(1000)
    applied(head, features.output, [weights.take("_fc.weight").T, weights.take("_fc.bias")])
    weights.check_all_taken()
    for layer, values in kernels:
        layer.set_weights(values)
    features.trainable = False
    return features, head


def dinov2_small(arrays: Arrays, side: int = SIDE) -> keras.Model:
    """DINOv2-small, a KerasHub backbone from images to tokens [n, 1 + (side / 14)^2, 384].

    Args:
        arrays: Its weights by the names of `transformers`.
        side: Of the images, a multiple of 14.

    Raises:
        UserError: Weights are missing, left over or of another shape.
    """
    import keras_hub
    from keras_hub.src.utils.transformers import convert_dinov2

    backbone = keras_hub.models.DINOV2Backbone(
        patch_size=14, num_layers=12, hidden_dim=384, num_heads=6, intermediate_dim=1536,
        image_shape=(side, side, 3), position_embedding_shape=(518, 518, 3),
    )  # fmt: skip
    weights = _Taken(arrays)

    class Loader:
        """Stands where KerasHub reads a file of `transformers`."""

        def port_weight(
            self, keras_variable: Any, hf_weight_key: str, hook_fn: Callable | None = None
        ) -> None:
            """Set a variable to the array of a name."""
            array, shape = weights.take(hf_weight_key), tuple(keras_variable.shape)
            array = array if hook_fn is None else hook_fn(array, list(shape))
            if array.size != np.prod(shape):
                raise UserError(
                    f"received weights {hf_weight_key!r} of shape {array.shape}, expected {shape}"
                )
            keras_variable.assign(np.reshape(array, shape))

    convert_dinov2.convert_weights(backbone, Loader(), {})
    weights.check_all_taken()
    backbone.trainable = False
    return backbone
