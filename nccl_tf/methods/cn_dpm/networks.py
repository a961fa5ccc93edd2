"""Networks of experts for CN-DPM, for small grey images and for colour images."""

from typing import TYPE_CHECKING

import keras

from nccl_tf.errors import UserError
from nccl_tf.methods.cn_dpm.experts import Experts

if TYPE_CHECKING:
    from nccl_tf.streams.arrays import PixelScaling


def mlp_experts(
    example_shape: tuple[int, int, int],
    num_classes: int,
    *,
    pixels: "PixelScaling | None" = None,
    widths: tuple[int, int] = (64, 16),
    latent: int = 16,
    samples: int = 16,
    max_experts: int = 20,
    seed: int = 0,
) -> keras.Model:
    """Build experts of dense layers, for small grey images; the default widths are for MNIST.

    Args:
        example_shape: Shape of one example, such as (height, width, channels).
        num_classes: Number of classes.
        pixels: Pixel scaling of the stream, of which only the factor to [0, 1] is used.
        widths: Units of a layer of the first expert, and of each later one.
        latent: Dimension of an autoencoder's code.
        samples: Codes drawn to estimate log p(x).
        max_experts: Maximum number of experts.
        seed: Seed of the initial weights.

    Returns:
        Model from raw images [B, h, w, c] to log p(y | x), float32 [B, classes].
    """
    return _build_network(
        "mlp", example_shape, num_classes, pixels, widths, widths, latent, samples, max_experts,
        seed,
    )  # fmt: skip


def conv_experts(
    example_shape: tuple[int, int, int],
    num_classes: int,
    *,
    pixels: "PixelScaling | None" = None,
    vae_widths: tuple[int, int] = (32, 4),
    classifier_widths: tuple[int, int] = (20, 4),
    latent: int = 64,
    samples: int = 16,
    max_experts: int = 20,
    seed: int = 0,
) -> keras.Model:
    """Build experts of convolutions, a ResNet as classifier; the default widths are for CIFAR.

    Args:
        example_shape: (height, width, channels); height and width multiples of 4, 16 or more.
        num_classes: Number of classes.
        pixels: Pixel scaling of the stream, of which only the factor to [0, 1] is used.
        vae_widths: Channels of the first autoencoder, and of each later one.
        classifier_widths: Channels of the first classifier, and of each later one.
        latent: Dimension of an autoencoder's code.
        samples: Codes drawn to estimate log p(x).
        max_experts: Maximum number of experts.
        seed: Seed of the initial weights.

    Returns:
        Model from raw images [B, h, w, c] to log p(y | x), float32 [B, classes].

    Raises:
        UserError: Height or width is below 16 or not a multiple of 4.
    """
    if min(example_shape[:2]) < 16 or any(side % 4 for side in example_shape[:2]):
        raise UserError(
            f"received images of {example_shape[0]}x{example_shape[1]}: conv_experts halves them "
            "four times and expects sides of 16 or more that 4 divides; use mlp_experts"
        )
    return _build_network(
        "conv", example_shape, num_classes, pixels, vae_widths, classifier_widths, latent, samples,
        max_experts, seed,
    )  # fmt: skip


def _build_network(
    kind: str,
    example_shape: tuple[int, int, int],
    num_classes: int,
    pixels: "PixelScaling | None",
    vae_widths: tuple[int, int],
    classifier_widths: tuple[int, int],
    latent: int,
    samples: int,
    max_experts: int,
    seed: int,
) -> keras.Model:
    inputs = keras.Input(example_shape, name="image")
    experts = Experts(
        num_classes, kind, vae_widths, classifier_widths, latent, samples, max_experts,
        scale=1 / 255 if pixels is None else float(pixels.scale), seed=seed, name="experts",
    )  # fmt: skip
    return keras.Model(inputs, experts(inputs), name=f"{kind}_experts")
