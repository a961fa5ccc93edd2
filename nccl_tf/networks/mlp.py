"""The multilayer perceptron of the MNIST experiments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras

from nccl_tf.errors import UserError
from nccl_tf.networks.layers import (
    CountedDropout,
    augment_images,
    check_example_shape,
    dropout_seeds,
    initializer_seeds,
    scale_pixels,
)

if TYPE_CHECKING:
    from nccl_tf.streams.arrays import PixelScaling


def mlp(
    example_shape: tuple[int, int, int],
    num_classes: int,
    *,
    hidden: Sequence[int] = (256, 256),
    pixels: "PixelScaling | None" = None,
    dropout: float = 0.0,
    augment: Sequence[str] = (),
    seed: int = 0,
) -> keras.Model:
    """Build a fully connected network with ReLU, orthogonal weights (gain 1) and biases 0.1.

    This is the network of the reference code of Chaudhry et al. (2020), which the paper follows:
    269,322 parameters from 28x28x1 images to 10 classes.

    Args:
        example_shape: Shape of one example, such as (height, width, channels).
        num_classes: Number of logits.
        hidden: Units of each hidden layer.
        pixels: Pixel scaling of the stream; None for x / 255.
        dropout: Probability in [0, 1) with which a hidden unit is dropped in training, after its
            activation (Stable SGD, Mirzadeh et al., 2020); with 0 the network has no such layer.
        augment: Random changes of images in training, "flip" and "crop": half are mirrored, and
            each is moved by up to an eighth of its side. Stream and memory batches are, with new
            draws each time; evaluation and what the memory keeps are not.
        seed: Seed of the initial weights, of dropout and of augmentation.

    Returns:
        Model from raw images [B, h, w, c] (uint8, or float in the same units) to float32 logits
        [B, num_classes].

    Raises:
        UserError: The shape is none of one input, or a hidden layer has fewer than one unit.

    Example:

    ```python
    stream = nccl_tf.load_stream("permuted_digits")
    network = nccl_tf.networks.mlp(
        stream.example_shape, stream.num_classes, hidden=(100,), pixels=stream.pixels
    )
    learner = nccl_tf.Finetune(network)
    ```
    """
    check_example_shape(example_shape)
    if isinstance(hidden, int):
        raise UserError(f"received hidden={hidden}, expected a width for each layer: ({hidden},)")
    if any(units < 1 for units in hidden):
        raise UserError(f"hidden={tuple(hidden)} has an empty layer: expected widths >= 1")
    seeds, drop_seeds = initializer_seeds(seed), dropout_seeds(seed)

    def dense(units: int, **kwargs: Any) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            kernel_initializer=keras.initializers.Orthogonal(seed=next(seeds)),
            bias_initializer=keras.initializers.Constant(0.1),
            **kwargs,
        )

    inputs = keras.Input(example_shape, name="image")
    flatten = keras.layers.Flatten(data_format="channels_last", name="flatten")
    x = flatten(scale_pixels(augment_images(inputs, augment, seed), pixels))
    for number, units in enumerate(hidden, start=1):
        x = dense(units, activation="relu", name=f"hidden{number}")(x)
        if dropout:
            x = CountedDropout(dropout, next(drop_seeds), name=f"dropout{number}")(x)
    logits = dense(num_classes, dtype="float32", name="logits")(x)
    return keras.Model(inputs, logits, name="mlp")
