"""ResNet-18 of the paper's experiments, full and reduced."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras

from nccl_tf.arguments.choices import CONV_INITS
from nccl_tf.errors import checked_name
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


def resnet18_reduced(
    example_shape: tuple[int, int, int],
    num_classes: int,
    *,
    pixels: "PixelScaling | None" = None,
    conv_init: str = "reference",
    dropout: float = 0.0,
    augment: Sequence[str] = (),
    seed: int = 0,
) -> keras.Model:
    r"""Build the "reduced ResNet-18, n_f = 20": 3x3 stem with ReLU, filters 20, 40, 80, 160.

    This is RESNET-S of Chaudhry et al. (2019, A-GEM): 1,109,240 trainable parameters with 100
    classes.

    Args:
        example_shape: Shape of one example, such as (height, width, channels).
        num_classes: Number of logits.
        pixels: Pixel scaling of the stream; None for x / 255.
        conv_init: "reference", uniform in $\pm 1/\sqrt{k c_{\mathrm{in}}}$ with $k$ the kernel's
            side, or "he", normal with variance $2/(k^2 c_{\mathrm{in}})$.
        dropout: Probability in [0, 1) with which a unit is dropped in training, after each ReLU of
            a block (Stable SGD, Mirzadeh et al., 2020); with 0 the network has no such layer.
        augment: Random changes of images in training, "flip" and "crop": half are mirrored, and
            each is moved by up to an eighth of its side. Stream and memory batches are, with new
            draws each time; evaluation and what the memory keeps are not.
        seed: Seed of the initial weights, of dropout and of augmentation.

    Returns:
        Model from raw images [B, h, w, c] (uint8, or float in the same units) to float32 logits
        [B, num_classes].

    Raises:
        UserError: Unknown `conv_init`, or a shape that is none of an image.

    Example:

    ```python
    network = nccl_tf.networks.resnet18_reduced((32, 32, 3), num_classes=100, conv_init="he")
    memory = nccl_tf.ReservoirMemory(1000, (32, 32, 3))
    learner = nccl_tf.NCCL(network, memory)
    ```
    """
    check_example_shape(example_shape, axes=3)
    builder = _Builder(conv_init, dropout, seed)
    inputs = keras.Input(example_shape, name="image")
    x = builder.conv_norm(
        scale_pixels(augment_images(inputs, augment, seed), pixels), 20, 3, 1, "stem"
    )
    x = keras.layers.ReLU(name="stem_relu")(x)
    x = builder.stages(x, (20, 40, 80, 160))
    logits = builder.head(x, num_classes, uniform_bias=True)
    return keras.Model(inputs, logits, name="resnet18_reduced")


def resnet18(
    example_shape: tuple[int, int, int],
    num_classes: int,
    *,
    pixels: "PixelScaling | None" = None,
    conv_init: str = "reference",
    dropout: float = 0.0,
    augment: Sequence[str] = (),
    seed: int = 0,
) -> keras.Model:
    """Build the "ResNet-18, n_f = 64": 7x7 stem of stride 1, no ReLU or pooling, filters 64 to 512.

    This is the network of Chaudhry et al. (2020, ORTHOG-SUBSPACE): 11,227,812 trainable parameters
    with 100 classes. Arguments, result and errors are those of `resnet18_reduced`.
    """
    check_example_shape(example_shape, axes=3)
    builder = _Builder(conv_init, dropout, seed)
    inputs = keras.Input(example_shape, name="image")
    x = builder.conv_norm(
        scale_pixels(augment_images(inputs, augment, seed), pixels), 64, 7, 1, "stem"
    )
    x = builder.stages(x, (64, 128, 256, 512))
    logits = builder.head(x, num_classes, uniform_bias=False)
    return keras.Model(inputs, logits, name="resnet18")


def resnet18_one_conv(
    example_shape: tuple[int, int, int],
    num_classes: int,
    *,
    pixels: "PixelScaling | None" = None,
    conv_init: str = "reference",
    dropout: float = 0.0,
    augment: Sequence[str] = (),
    seed: int = 0,
) -> keras.Model:
    """Build the reduced network of Stable SGD's code, whose blocks have one 3x3 convolution.

    With x the input, a block of Mirzadeh et al. (2020) is

        y = drop(norm(relu(conv(x)))),  drop(norm(relu(y + shortcut(x)))),

    the shortcut being x, or a 1x1 convolution where the shape changes: batch norm and dropout
    stand between activations and weights (github.com/imirzadeh/stable-continual-learning,
    `BasicBlock` of stable_sgd/models.py, which makes a second convolution and never calls it).
    Stem, filters and head are those of `resnet18_reduced`; batch norm has epsilon 1e-5, and the
    reference's first weights are uniform in +-1/sqrt(k^2 c_in), both as in PyTorch. 496,680
    trainable parameters with 100 classes. Arguments, result and errors are those of
    `resnet18_reduced`; `dropout` follows each of a block's batch norms.
    """
    check_example_shape(example_shape, axes=3)
    builder = _Builder(conv_init, dropout, seed, as_pytorch=True)
    inputs = keras.Input(example_shape, name="image")
    x = builder.conv_norm(
        scale_pixels(augment_images(inputs, augment, seed), pixels), 20, 3, 1, "stem"
    )
    x = keras.layers.ReLU(name="stem_relu")(x)
    x = builder.stages(x, (20, 40, 80, 160), builder.one_conv_block)
    logits = builder.head(x, num_classes, uniform_bias=True)
    return keras.Model(inputs, logits, name="resnet18_one_conv")


class _Builder:
    """Builds the parts that the networks share, with a different seed for each layer.

    Args:
        conv_init: As for the networks.
        dropout: As for the networks.
        seed: As for the networks.
        as_pytorch: Whether batch norm and the reference's first weights are PyTorch's.
    """

    def __init__(self, conv_init: str, dropout: float, seed: int, as_pytorch: bool = False) -> None:
        checked_name("conv_init", conv_init, CONV_INITS)
        self._conv_init = conv_init
        self._as_pytorch = as_pytorch
        self._dropout = dropout
        self._seeds, self._dropout_seeds = initializer_seeds(seed), dropout_seeds(seed)

    def conv_norm(
        self, x: keras.KerasTensor, filters: int, side: int, stride: int, name: str
    ) -> keras.KerasTensor:
        """Convolution without bias, then batch norm with momentum 0.9."""
        return self._norm(self._conv(x, filters, side, stride, name), name)

    def _norm(self, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        epsilon = 1e-5 if self._as_pytorch else 1e-3
        layer = keras.layers.BatchNormalization(momentum=0.9, epsilon=epsilon, name=f"{name}_norm")
        return layer(x)

    def _conv(
        self, x: keras.KerasTensor, filters: int, side: int, stride: int, name: str
    ) -> keras.KerasTensor:
        if self._conv_init == "he":
            initializer = keras.initializers.HeNormal(seed=next(self._seeds))
        else:
            # The fan of the reference code omits one factor of the kernel's side.
            fan = side * (side if self._as_pytorch else 1) * x.shape[-1]
            initializer = self._uniform(1 / math.sqrt(fan))
        conv = keras.layers.Conv2D(
            filters,
            side,
            strides=stride,
            padding="same",
            use_bias=False,
            data_format="channels_last",
            kernel_initializer=initializer,
            name=f"{name}_conv",
        )
        return conv(x)

    def stages(
        self, x: keras.KerasTensor, widths: tuple[int, ...], block: Callable[..., Any] | None = None
    ) -> keras.KerasTensor:
        """Two blocks per width; every stage but the first begins with stride 2.

        Args:
            x: Input.
            widths: Filters of each stage.
            block: Builds a block; None for the basic one.
        """
        block = block or self._block
        for stage, width in enumerate(widths, start=1):
            x = block(x, width, 1 if stage == 1 else 2, f"stage{stage}_block1")
            x = block(x, width, 1, f"stage{stage}_block2")
        return x

    def one_conv_block(
        self, x: keras.KerasTensor, width: int, stride: int, name: str
    ) -> keras.KerasTensor:
        """The block of `resnet18_one_conv`."""
        same = stride == 1 and x.shape[-1] == width
        shortcut = x if same else self._conv(x, width, 1, stride, f"{name}_shortcut")
        y = keras.layers.ReLU(name=f"{name}_a_relu")(self._conv(x, width, 3, stride, f"{name}_a"))
        y = self._drop(self._norm(y, f"{name}_a"), f"{name}_a")
        y = keras.layers.Add(name=f"{name}_add")([y, shortcut])
        return self._drop(self._norm(keras.layers.ReLU(name=f"{name}_relu")(y), name), name)

    def _block(self, x: keras.KerasTensor, width: int, stride: int, name: str) -> keras.KerasTensor:
        conv_norm = functools.partial(self.conv_norm, filters=width)
        shortcut = x if stride == 1 else conv_norm(x, side=1, stride=2, name=f"{name}_shortcut")
        y = conv_norm(x, side=3, stride=stride, name=f"{name}_a")
        y = self._relu(y, f"{name}_a")
        y = conv_norm(y, side=3, stride=1, name=f"{name}_b")
        y = keras.layers.Add(name=f"{name}_add")([y, shortcut])
        return self._relu(y, name)

    def _relu(self, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        return self._drop(keras.layers.ReLU(name=f"{name}_relu")(x), name)

    def _drop(self, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        if not self._dropout:
            return x
        seed = next(self._dropout_seeds)
        return CountedDropout(self._dropout, seed, name=f"{name}_dropout")(x)

    def head(
        self, x: keras.KerasTensor, num_classes: int, *, uniform_bias: bool
    ) -> keras.KerasTensor:
        """Global average pooling and the dense layer to the logits."""
        bound = 1 / math.sqrt(x.shape[-1])
        x = keras.layers.GlobalAveragePooling2D(data_format="channels_last", name="pool")(x)
        kernel_initializer = self._uniform(bound)
        logits = keras.layers.Dense(
            num_classes,
            kernel_initializer=kernel_initializer,
            bias_initializer=self._uniform(bound) if uniform_bias else "zeros",
            dtype="float32",
            name="logits",
        )
        return logits(x)

    def _uniform(self, bound: float) -> keras.initializers.Initializer:
        return keras.initializers.RandomUniform(-bound, bound, seed=next(self._seeds))
