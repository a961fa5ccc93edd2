"""Points on the line between two sets of weights (MER, MC-SGD)."""

import tensorflow as tf


def between(
    start: list[tf.Tensor], end: list[tf.Tensor], fraction: tf.Tensor | float
) -> list[tf.Tensor]:
    """start + fraction (end - start), weight by weight.

    Args:
        start: A tensor per weight.
        end: Tensors of the same shapes.
        fraction: A scalar, of the weights' dtype if it is a tensor; with 1 the result is `end` to
            the last bit, and so is every entry that is the same in both.
    """
    # Written from the end: start + 1 (end - start) would be `end` only to within rounding.
    return [e - (1 - fraction) * (e - s) for s, e in zip(start, end, strict=True)]
