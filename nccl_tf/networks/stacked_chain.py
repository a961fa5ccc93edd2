"""Several networks of dense layers as one."""

import functools
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.networks.dense_chain import DenseChain, Factors


class StackedChain(DenseChain):
    """S networks of the same layers: example i of network s meets the weights of network s alone.

    Images and everything made of them have a leading dimension S. The weights are the networks' own
    and the products with them are made network by network: on a CPU one batched product of five
    kernels takes twice as long, and copies of the weights would have to be kept equal.

    Args:
        chains: The networks, of which `difference` says nothing.
    """

    def __init__(self, chains: Sequence[DenseChain]):
        super().__init__(chains[0].layers)
        self._chains = list(chains)

    def between(self, layer: keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
        # The layer is made for examples along one dimension, and treats each for itself.
        y = layer(tf.reshape(x, [-1, *x.shape[2:]]))
        return tf.reshape(y, [*_leading(x), *y.shape[1:]])

    def dense(self, layer: keras.layers.Dense, x: tf.Tensor) -> tf.Tensor:
        number = self.dense_layers.index(layer)
        parts = zip(self._chains, tf.unstack(x), strict=True)
        return tf.stack([chain.dense(chain.dense_layers[number], part) for chain, part in parts])

    def by_rows(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        pairs = zip(tf.unstack(x), tf.unstack(y), strict=True)
        return tf.stack([super(StackedChain, self).by_rows(*pair) for pair in pairs])

    def descend_where(self, finite: tf.Tensor, factors: Factors, rate: tf.Tensor) -> None:
        """x <- x - rate * direction in the networks whose direction is finite.

        Args:
            finite: bool [S].
            factors: Of the directions, with a leading dimension S.
            rate: Scalar.
        """
        parts = zip(self._chains, factors.times(rate).unstacked(), strict=True)
        moves = [functools.partial(own.subtract_from, chain.variables()) for chain, own in parts]

        def some() -> None:
            for keep, move in zip(tf.unstack(finite), moves, strict=True):
                tf.cond(keep, move, lambda: None)

        def every() -> None:
            for move in moves:
                move()

        # One question in place of S in the usual case.
        tf.cond(tf.reduce_all(finite), every, some)


def _leading(x: tf.Tensor) -> list[int]:
    """The first two dimensions of a tensor, -1 where the second one is not known."""
    return [x.shape[0], -1 if x.shape[1] is None else x.shape[1]]


def difference(one: DenseChain, other: DenseChain) -> str:
    """In what two chains differ that only their weights may differ in; "" where in nothing."""
    if len(one.layers) != len(other.layers):
        return "their numbers of layers"
    for number, (a, b) in enumerate(zip(one.layers, other.layers, strict=True), start=1):
        if type(a) is not type(b) or _kept(a) != _kept(b) or a.output.shape != b.output.shape:
            return f"layer {number}"
        values = zip(a.non_trainable_variables, b.non_trainable_variables, strict=True)
        if not all(np.array_equal(v.numpy(), w.numpy()) for v, w in values):
            return f"the statistics of layer {number}"
    return ""


def _kept(layer: keras.layers.Layer) -> dict[str, object]:
    """What a layer computes, its weights and its name apart."""
    if isinstance(layer, keras.layers.Dense):
        return {"activation": layer.activation, "bias": layer.use_bias, "dtype": layer.dtype}
    return {name: value for name, value in layer.get_config().items() if name != "name"}
