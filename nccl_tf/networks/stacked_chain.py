"""Several networks of dense layers as one, with their weights stacked."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.networks.dense_chain import DenseChain


class StackedChain(DenseChain):
    """S chains of the same layers: kernels [S, inputs, units] and biases [S, units] of each layer.

    Images and everything made of them have a leading dimension S, and example i of network s meets
    the weights of network s alone. The stacked weights are copies: `gather` takes them from the
    networks, `scatter` gives them back.

    Args:
        chains: The networks, of which `difference` says nothing.
    """

    def __init__(self, chains: Sequence[DenseChain]):
        super().__init__(chains[0].layers)
        self._networks = [chain.variables() for chain in chains]
        self.stacked = [
            keras.Variable(
                np.zeros((len(chains), *v.shape), v.dtype), dtype=v.dtype, name=v.name,
                trainable=False, autocast=False,
            )
            for v in self._networks[0]
        ]  # fmt: skip
        self._of_layer = {}
        left = iter(self.stacked)
        for layer in self.dense_layers:
            self._of_layer[id(layer)] = next(left), next(left) if layer.use_bias else None

    def gather(self) -> None:
        """Take the weights from the networks."""
        for stacked, parts in zip(self.stacked, zip(*self._networks, strict=True), strict=True):
            stacked.assign(tf.stack([part.value for part in parts]))

    def scatter(self) -> None:
        """Give the weights back to the networks."""
        for stacked, parts in zip(self.stacked, zip(*self._networks, strict=True), strict=True):
            for part, value in zip(parts, tf.unstack(stacked.value), strict=True):
                part.assign(value)

    def between(self, layer: keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
        # The layer is made for examples along one dimension, and treats each for itself.
        y = layer(tf.reshape(x, [-1, *x.shape[2:]]))
        return tf.reshape(y, [x.shape[0], -1, *y.shape[1:]])

    def dense(self, layer: keras.layers.Dense, x: tf.Tensor) -> tf.Tensor:
        kernel, bias = self._of_layer[id(layer)]
        x = tf.matmul(x, kernel.value)
        return x if bias is None else x + bias.value[:, None]


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
