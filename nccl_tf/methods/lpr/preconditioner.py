"""The preconditioner of a layer's gradient, from its inputs on memory examples."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.methods.lpr.layers import seen_by_weights

Make = Callable[[str, tuple[int, ...], str], keras.Variable]
"""Makes a variable of zeros from a name, a shape and a dtype."""

Sums = tuple[tf.Tensor, tf.Tensor]
"""The sums of a preconditioner so far: Z^T Z, or the rows of Z, and c times the examples."""


class Preconditioner:
    """P^-1 of one layer, P = I + s Z^T Z with s = omega/(c N), of N examples, some at a time.

    c is the number of places of an example in Z, to the power beta; it is 1 for a dense layer. One
    that has more inputs than examples are read keeps Z and an inverse of N rows in place of P^-1,
    which is I - s Z^T (I + s Z Z^T)^-1 Z.

    It is not a Keras object, so a model that holds one does not track the layer a second time.

    Args:
        layer: As `preconditioned_layers` finds it.
        make: Makes the state, with which P is I at first.
        examples: N at most.
        omega: How much the outputs on memory examples are held.
        beta: As above.
    """

    def __init__(self, layer: Any, make: Make, examples: int, omega: float, beta: float):
        self.layer, self.omega, self.beta = layer, omega, beta
        self._normalises = isinstance(layer, keras.layers.BatchNormalization)
        if self._normalises:
            lead, width = layer.gamma.shape, 1 + layer.center
            self.weights = [layer.gamma, *([layer.beta] if layer.center else [])]
        else:
            lead, width = (), math.prod(layer.kernel.shape[:-1]) + layer.use_bias
            self.weights = [layer.kernel, *([layer.bias] if layer.use_bias else [])]
        self.dtype = self.weights[0].dtype
        self.rows: keras.Variable | None = None
        if isinstance(layer, keras.layers.Dense) and examples < width:
            self.rows = make("rows", (examples, width), self.dtype)
            self.inverse = make("inverse", (examples, examples), self.dtype)
        else:
            self.inverse = make("inverse", (*lead, width, width), self.dtype)
            self.inverse.assign(self.inverse.value + tf.eye(width, dtype=self.dtype))

    def nothing(self) -> Sums:
        """The sums before any example is read."""
        kept = self.inverse if self.rows is None else self.rows
        return tf.zeros(kept.shape, self.dtype), tf.zeros((), self.dtype)

    def read(self, sums: Sums, inputs: tf.Tensor, weights: tf.Tensor, first: tf.Tensor) -> Sums:
        """The sums with some memory examples more.

        Args:
            sums: Those of the examples before.
            inputs: What the layer receives, [n, ...].
            weights: float32 [n], 1 or 0.
            first: int64 scalar, the number of examples before, with those of weight 0.
        """
        kept, total = sums
        z = seen_by_weights(self.layer, tf.cast(inputs, self.dtype))
        weights = tf.cast(weights, self.dtype)
        places = tf.cast(tf.shape(z)[-2], self.dtype)
        z *= weights[:, None, None]
        z = tf.reshape(z, [*z.shape[:-3], -1, z.shape[-1]])
        if self.rows is None:
            kept += tf.matmul(z, z, transpose_a=True)
        else:
            numbers = first + tf.range(tf.shape(z, tf.int64)[0])
            kept = tf.tensor_scatter_nd_update(kept, numbers[:, None], z)
        return kept, total + places**self.beta * tf.reduce_sum(weights)

    def refresh(self, sums: Sums) -> None:
        """Take P of the examples that were read; one of them at least has weight 1."""
        kept, total = sums
        scale = self.omega / total
        if self.rows is None:
            self.inverse.assign(_inverse(scale * kept))
        else:
            self.rows.assign(kept)
            self.inverse.assign(scale * _inverse(scale * tf.matmul(kept, kept, transpose_b=True)))

    def __call__(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """P^-1 times the gradients of `weights`, in their shapes."""
        if self._normalises:
            whole = tf.stack(gradients, axis=-1)
            return tf.unstack(tf.linalg.matvec(self.inverse.value, whole), axis=-1)
        kernel = gradients[0]
        flat = tf.reshape(kernel, [-1, kernel.shape[-1]])
        whole = tf.concat([flat, *(bias[None] for bias in gradients[1:])], axis=0)
        if self.rows is None:
            whole = tf.matmul(self.inverse.value, whole)
        else:
            rows = self.rows.value
            held = tf.matmul(self.inverse.value, tf.matmul(rows, whole))
            whole -= tf.matmul(rows, held, transpose_a=True)
        if len(gradients) == 1:
            return [tf.reshape(whole, kernel.shape)]
        return [tf.reshape(whole[:-1], kernel.shape), whole[-1]]


def _inverse(part: tf.Tensor) -> tf.Tensor:
    """(I + part)^-1 for a symmetric part without negative eigenvalues, [..., n, n]."""
    unit = tf.eye(tf.shape(part)[-1], batch_shape=tf.shape(part)[:-2], dtype=part.dtype)
    return tf.linalg.cholesky_solve(tf.linalg.cholesky(unit + part), unit)
