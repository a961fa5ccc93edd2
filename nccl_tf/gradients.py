"""Inner products, norms and weighted sums over lists of gradients, one tensor per variable.

Methods treat the gradients of all variables as one long vector. Nothing is concatenated: sums over
variables of sums over entries give the same values without a copy as large as the weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from nccl_tf import xla

Gradients = Sequence[tf.Tensor]


class Products(NamedTuple):
    r"""The scalars that step sizes depend on: $\Lambda = \langle f_I, g_J \rangle$, $\|f_I\|^2$ and
    $\|g_J\|^2$."""

    lambda_: tf.Tensor
    memory_squared_norm: tf.Tensor
    stream_squared_norm: tf.Tensor


def accumulation_dtype(gradients: Gradients) -> tf.DType:
    """The dtype of sums: float64 for float64 gradients, float32 for every other dtype."""
    return tf.float64 if gradients[0].dtype == tf.float64 else tf.float32


def inner_product(left: Gradients, right: Gradients) -> tf.Tensor:
    r"""$\langle \text{left}, \text{right} \rangle$ over all variables ($\Lambda$ of the paper,
    section 5, for $f_I$ and $g_J$).

    Args:
        left: A tensor per variable.
        right: Tensors of the same shapes.

    Returns:
        A scalar, accumulated in float32 (float64 for float64 gradients).
    """
    dtype = accumulation_dtype(left)
    products = [
        sum_of_products(tf.cast(a, dtype), tf.cast(b, dtype))
        for a, b in zip(left, right, strict=True)
    ]
    return tf.add_n(products)


def squared_norm(gradients: Gradients) -> tf.Tensor:
    r"""$\|gradients\|^2$ over all variables: a scalar, accumulated as in `inner_product`."""
    dtype = accumulation_dtype(gradients)
    return 2.0 * tf.add_n([half_squared_norm(tf.cast(g, dtype)) for g in gradients])


def sum_of_products(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """The sum over all entries of left * right, two tensors of one shape, in their dtype."""
    if xla.in_program_of_a_processor() and left.shape.rank and left.shape.rank > 1:
        # There XLA adds number by number; a product with a vector takes a fourth of the time.
        rows = tf.reshape(left * right, [-1, left.shape[-1]])
        return tf.reduce_sum(tf.linalg.matvec(rows, tf.ones_like(rows[0])))
    # tf.tensordot of two vectors takes ten times as long.
    return tf.reduce_sum(left * right)


def half_squared_norm(tensor: tf.Tensor) -> tf.Tensor:
    """Half the sum of the squares of all entries, in the tensor's dtype."""
    if xla.in_program_of_a_processor():
        return sum_of_products(tensor, tensor) / 2
    return tf.nn.l2_loss(tensor)


def products_by_variable(memory: Gradients, stream: Gradients) -> Products:
    r"""$\Lambda$ and both squared norms of each variable by itself, float [variables] each.

    Args:
        memory: $f_I$, a tensor per variable.
        stream: $g_J$, tensors of the same shapes.
    """
    pairs = [([f], [g]) for f, g in zip(memory, stream, strict=True)]
    return Products(
        tf.stack([inner_product(f, g) for f, g in pairs]),
        tf.stack([squared_norm(f) for f, _ in pairs]),
        tf.stack([squared_norm(g) for _, g in pairs]),
    )


def weighted_sum(
    left_weight: tf.Tensor, left: Gradients, right_weight: tf.Tensor, right: Gradients
) -> list[tf.Tensor]:
    """left_weight * left + right_weight * right, variable by variable.

    Args:
        left_weight: Scalar.
        left: A tensor per variable.
        right_weight: Scalar.
        right: Tensors of the same shapes.

    Returns:
        A tensor per variable, in the dtype of `left`.
    """
    return [
        tf.cast(left_weight, a.dtype) * a + tf.cast(right_weight, a.dtype) * b
        for a, b in zip(left, right, strict=True)
    ]


def lerp(
    start: list[tf.Tensor], end: list[tf.Tensor], fraction: tf.Tensor | float
) -> list[tf.Tensor]:
    """Linear interpolation, start + fraction (end - start), variable by variable.

    Args:
        start: A tensor per variable.
        end: Tensors of the same shapes.
        fraction: A scalar, of the variables' dtype if it is a tensor.

    Returns:
        A tensor per variable; with fraction 1 bit-identical to `end`, as is every entry in which
        `start` and `end` agree.
    """
    # start + 1 (end - start) would equal `end` only up to rounding.
    return [e - (1 - fraction) * (e - s) for s, e in zip(start, end, strict=True)]


def loss_scale(optimizer: keras.optimizers.Optimizer) -> tf.Tensor | None:
    """An optimizer's loss scale, as for float16; None where it has none."""
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if not scales and optimizer.loss_scale_factor is None:
        return None
    return optimizer.scale_loss(tf.constant(1.0))
