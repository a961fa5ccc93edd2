"""Steps on the Stiefel manifold: matrices W of orthonormal columns, W^T W = I.

As Chaudhry et al. (NeurIPS 2020), after Li et al. (ICLR 2020), "Efficient Riemannian optimization
on the Stiefel manifold via the Cayley transform".
"""

import keras
import numpy as np
import tensorflow as tf


def can_be_orthonormal(variable: keras.Variable) -> bool:
    """Whether a kernel, as a matrix of a column for each unit, has as many rows as columns."""
    return len(variable.shape) > 1 and np.prod(variable.shape[:-1]) >= variable.shape[-1]


def as_matrix(kernel: tf.Tensor) -> tf.Tensor:
    """A kernel [..., units] as [rows, units]."""
    return tf.reshape(kernel, [-1, kernel.shape[-1]])


def orthonormalized(kernel: tf.Tensor) -> tf.Tensor:
    """A kernel whose matrix has orthonormal columns spanning the same: Q of its QR decomposition.

    The signs are such that R has a positive diagonal; what is orthonormal already stays.

    Args:
        kernel: [..., units], of full rank and with at least as many rows as units.
    """
    q, r = tf.linalg.qr(as_matrix(kernel))
    signs = tf.where(tf.linalg.diag_part(r) < 0, -1, 1)
    return tf.reshape(q * tf.cast(signs, q.dtype), kernel.shape)


def step(
    kernel: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor, iterations: int | None
) -> tf.Tensor:
    """The kernel after a step against the gradient along the manifold, by the Cayley transform.

    With H = G - W W^T G/2 and the skew matrix A = H W^T - W H^T it is
    (I + tau A/2)^-1 (I - tau A/2) W, where tau = min(rate, 1/(|A|_1 + 1e-8)) and |A|_1 is the
    largest sum of the absolute values in a row.

    Args:
        kernel: W, [..., units] with orthonormal columns.
        gradient: G, of the same shape.
        rate: Step size, a scalar.
        iterations: Fixed-point iterations Y <- W - tau A (W + Y)/2 from Y = W - tau A W; None for
            the exact solution.

    Returns:
        W+, of the kernel's shape; its columns are orthonormal (exact solution, up to rounding).
    """
    w, g = as_matrix(kernel), as_matrix(gradient)
    h = g - w @ tf.linalg.matmul(w, g, transpose_a=True) / 2
    half = tf.linalg.matmul(h, w, transpose_b=True)
    row_sums = tf.reduce_sum(tf.abs(half - tf.transpose(half)), axis=1)
    longest = 1 / (tf.reduce_max(row_sums) + tf.constant(1e-8, w.dtype))
    tau = tf.minimum(tf.cast(rate, w.dtype), longest)
    # A = U V^T has a rank of at most twice the units: no system of the size of A is solved.
    u, v = tf.concat([h, w], axis=1), tf.concat([w, -h], axis=1)
    if iterations is None:
        unit = tf.eye(u.shape[1], dtype=w.dtype)
        system = unit + tau / 2 * tf.matmul(v, u, transpose_a=True)
        # The op raises where a gradient is not finite, and so is w less than that: a skipped step.
        system = tf.where(tf.reduce_all(tf.math.is_finite(system)), system, unit)
        moved = w - tau * u @ tf.linalg.solve(system, tf.matmul(v, w, transpose_a=True))
    else:
        moved = w - tau * u @ tf.matmul(v, w, transpose_a=True)
        for _ in range(iterations):
            moved = w - tau / 2 * u @ tf.matmul(v, w + moved, transpose_a=True)
    return tf.reshape(moved, kernel.shape)
