"""Both gradients of a network of dense layers in one pass over rows, without forming them.

The gradient of a batch by a dense layer's kernel is A^T D, with A [n, inputs] the layer's inputs
and D [n, units] the gradients by its outputs, a row an example. Inner products of two such
gradients follow from products of the rows,
<A_I^T D_I, A_J^T D_J> = sum_ij (A_I A_J^T)_ij (D_I D_J^T)_ij, and any sum
w_I A_I^T D_I + w_J A_J^T D_J is one product of A with D's rows scaled. A bias is a column of ones
in A. So a step takes one forward and one backward pass, and forms one gradient in place of two.
"""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from nccl_tf.batch import Batch, concat_batches
from nccl_tf.gradients import Products
from nccl_tf.learner.step import GradientPair, Logits
from nccl_tf.networks.layers import SubtractMeanImage

_ROW_BY_ROW = (
    keras.layers.Rescaling, keras.layers.Normalization, SubtractMeanImage, keras.layers.Flatten,
    keras.layers.Reshape, keras.layers.Activation, keras.layers.ReLU,
)  # fmt: skip
"""Layers that treat every example for itself, draw nothing and have nothing to train."""


class RowPair(GradientPair):
    """f_I and g_J of dense layers by the rows of both batches, the memory's first.

    Args:
        layers: The dense layers.
        inputs: A of each layer, [n, inputs].
        slopes: D of each layer, [n, units].
        split: Examples in the memory batch.
        losses: As in `GradientPair`.
        logits: Of the stream batch.
    """

    def __init__(
        self,
        layers: list[keras.layers.Dense],
        inputs: list[tf.Tensor],
        slopes: list[tf.Tensor],
        split: tf.Tensor,
        losses: dict[str, tf.Tensor],
        logits: Logits,
    ):
        self._layers, self._inputs, self._slopes, self._split = layers, inputs, slopes, split
        self.losses, self.logits = losses, logits

    @property
    def memory(self) -> list[tf.Tensor]:
        """f_I, a tensor per trainable variable."""
        return self._formed(slice(None, self._split))

    @property
    def stream(self) -> list[tf.Tensor]:
        """g_J, a tensor per trainable variable."""
        return self._formed(slice(self._split, None))

    def products(self) -> Products:
        r"""$\Lambda = \langle f_I, g_J \rangle$, $\|f_I\|^2$ and $\|g_J\|^2$."""
        memory, stream = slice(None, self._split), slice(self._split, None)
        # In two parts, the memory's rows by all and the stream's by its own: on a CPU they take
        # less time than the product of all rows by all rows.
        by_all, by_stream = self._by_rows(memory, slice(None)), self._by_rows(stream, stream)
        return Products(
            tf.reduce_sum(by_all[:, stream]),
            tf.reduce_sum(by_all[:, memory]),
            tf.reduce_sum(by_stream),
        )

    def combined(self, memory_weight: tf.Tensor, stream_weight: tf.Tensor) -> list[tf.Tensor]:
        """memory_weight f_I + stream_weight g_J, a tensor per trainable variable."""
        count = tf.shape(self._inputs[0])[0]
        weights = tf.where(tf.range(count) < self._split, memory_weight, stream_weight)
        return self._formed(slice(None), weights)

    def _by_rows(self, rows: slice, others: slice) -> tf.Tensor:
        """Inner products of the gradients of single examples, [rows, others]."""
        total = tf.zeros((), self._slopes[0].dtype)
        for layer, a, d in zip(self._layers, self._inputs, self._slopes, strict=True):
            product = tf.matmul(a[rows], a[others], transpose_b=True)
            if layer.use_bias:
                product += 1.0
            total += product * tf.matmul(d[rows], d[others], transpose_b=True)
        return total

    def _formed(self, rows: slice, weights: tf.Tensor | None = None) -> list[tf.Tensor]:
        """The sum over examples of weight times gradient, a tensor per trainable variable."""
        gradients = []
        for layer, a, d in zip(self._layers, self._inputs, self._slopes, strict=True):
            d = d[rows] if weights is None else d * tf.cast(weights, d.dtype)[:, None]
            gradients.append(tf.matmul(a[rows], d, transpose_a=True))
            if layer.use_bias:
                gradients.append(tf.reduce_sum(d, axis=0))
        return gradients


class RowGradients:
    """Takes pairs of gradients of a chain of dense layers; `RowGradients.of` tells where it can.

    Args:
        layers: The network's layers in order.
    """

    def __init__(self, layers: list[keras.layers.Layer]):
        self._layers = layers
        self._dense = [layer for layer in layers if isinstance(layer, keras.layers.Dense)]

    @classmethod
    def of(cls, network: keras.Model, variables: Sequence[keras.Variable]) -> "RowGradients | None":
        """For a network; None where it needs tapes.

        It does where layers mix examples, draw numbers, regularise, or compute in another dtype
        than that of their weights, and where the network is no chain of layers or a class of its
        own.

        Args:
            network: The network.
            variables: That gradients are taken by.
        """
        if not network.built or not type(network).__module__.startswith("keras."):
            return None
        layers = [x for x in network.layers if not isinstance(x, keras.layers.InputLayer)]
        if not _are_chained(network, layers) or not all(map(_fits, layers)):
            return None
        rows = cls(layers)
        own = [id(v) for layer in rows._dense for v in layer.trainable_variables]
        return rows if own and own == [id(v) for v in variables] else None

    def pair(
        self,
        batch: Batch,
        replay: Batch,
        losses_of: Callable[..., tuple[tf.Tensor, tf.Tensor, Logits]],
    ) -> RowPair:
        """f_I on the memory batch and g_J on the stream batch.

        Args:
            batch: The stream batch.
            replay: The memory batch.
            losses_of: From the network's outputs for the stream batch and for the memory batch,
                [n, classes], to the mean losses on them and the stream batch's logits.
        """
        sizes = [tf.shape(part.labels)[0] for part in (replay, batch)]
        inputs, outputs = [], []
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            x = concat_batches(replay, batch).inputs
            for layer in self._layers:
                if layer not in self._dense:
                    x = layer(x)
                    continue
                x = tf.cast(x, layer.compute_dtype)
                inputs.append(x)
                x = tf.matmul(x, layer.kernel.value)
                x = tf.nn.bias_add(x, layer.bias.value) if layer.use_bias else x
                tape.watch(x)
                outputs.append(x)
                x = layer.activation(x)
            memory, stream = tf.split(x, sizes)
            stream_loss, memory_loss, logits = losses_of(stream, memory)
            # No example is in both batches, so each row's gradient is by its own batch's loss.
            total = memory_loss + stream_loss
        losses = {"loss": stream_loss, "memory_loss": memory_loss}
        slopes = tape.gradient(total, outputs)
        return RowPair(self._dense, inputs, slopes, sizes[0], losses, logits)


def _are_chained(network: keras.Model, layers: list[keras.layers.Layer]) -> bool:
    """Whether each layer is used once, on the outputs of the one before it."""
    if isinstance(network, keras.Sequential):
        return len(set(map(id, layers))) == len(layers)
    if len(network.inputs) != 1 or len(network.outputs) != 1:
        return False
    end = network.inputs[0]
    for layer in layers:
        if layer.input is not end:
            return False
        end = layer.output
    return network.outputs[0] is end


def _fits(layer: keras.layers.Layer) -> bool:
    if layer.activity_regularizer:
        return False
    if not isinstance(layer, keras.layers.Dense):
        return type(layer) in _ROW_BY_ROW and not layer.trainable_variables
    return (
        type(layer) is keras.layers.Dense
        and len(layer.trainable_variables) == len(layer.variables)
        and not (layer.kernel_regularizer or layer.bias_regularizer)
        and layer.compute_dtype == layer.variable_dtype
        and len(layer.input.shape) == 2
        and not layer.lora_enabled
    )
