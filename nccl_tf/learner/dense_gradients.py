"""Networks of dense layers, whose gradients can be weighed without forming them.

The gradient of a batch by a dense layer's kernel is A^T D, with A [n, inputs] the layer's inputs
and D [n, units] the gradients by its outputs. Inner products of two such gradients follow from
products of the rows, <A_I^T D_I, A_J^T D_J> = sum_ij (A_I A_J^T)_ij (D_I D_J^T)_ij, and any sum
w_I A_I^T D_I + w_J A_J^T D_J is one product of A with D's rows scaled.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from nccl_tf.gradients import Products
from nccl_tf.networks.layers import SubtractMeanImage

_ROW_BY_ROW = (
    keras.layers.Rescaling, keras.layers.Normalization, SubtractMeanImage, keras.layers.Flatten,
    keras.layers.Reshape, keras.layers.Activation, keras.layers.ReLU,
)  # fmt: skip
"""Layers that treat every example for itself, draw nothing and have nothing to train."""


class Pass(NamedTuple):
    """A pass of n examples through the dense layers, a tensor per layer.

    Attributes:
        inputs: A, [n, inputs].
        outputs: Z = A W + b before the activation, [n, units].
    """

    inputs: list[tf.Tensor]
    outputs: list[tf.Tensor]


class Factors(NamedTuple):
    """A direction whose part for a kernel is A^T D, and for a bias the sum of D's rows.

    Attributes:
        inputs: A of each layer, [n, inputs].
        slopes: D of each layer, [n, units].
        biased: Whether each layer has a bias.
    """

    inputs: list[tf.Tensor]
    slopes: list[tf.Tensor]
    biased: list[bool]

    def direction(self) -> list[tf.Tensor]:
        """A tensor per trainable variable."""
        found = []
        for a, d, biased in zip(*self, strict=True):
            found.append(tf.matmul(a, d, transpose_a=True))
            if biased:
                found.append(tf.reduce_sum(d, axis=-2))
        return found

    def size(self) -> tf.Tensor:
        """A scalar that is finite only where the direction is: |A^T D| <= |A| |D| (Frobenius)."""
        norms = [
            _half_square(a) * _half_square(d) for a, d in zip(self.inputs, self.slopes, strict=True)
        ]
        return tf.add_n(norms)

    def descend(self, variables: list[keras.Variable], rate: tf.Tensor) -> None:
        """x <- x - rate * direction, with the rate on the rows: kernels are passed over once less.

        Args:
            variables: The trainable variables, in the order of `direction`.
            rate: Scalar.
        """
        self.times(rate).subtract_from(variables)

    def times(self, rate: tf.Tensor) -> "Factors":
        """Those of rate * direction."""
        return self._replace(slopes=[d * tf.cast(rate, d.dtype) for d in self.slopes])

    def subtract_from(self, variables: list[keras.Variable]) -> None:
        """x <- x - direction, for the trainable variables in the order of `direction`."""
        for variable, part in zip(variables, self.direction(), strict=True):
            variable.value.assign_sub(part)


class RowDirection(list[tf.Tensor]):
    """A direction, a tensor per trainable variable, that knows its factors.

    What is made of it anew, scaled or clipped, is a plain list and stands for itself.

    Args:
        factors: Its factors.
        size: A scalar that is finite only where the direction is; None for `factors.size()`.
    """

    def __init__(self, factors: Factors, size: tf.Tensor | None = None):
        super().__init__(factors.direction())
        self.factors = factors
        self.size = factors.size() if size is None else size


class DenseChain:
    """A network that is one chain of dense layers and of layers without weights between them.

    `DenseChain.of` says whether a network is one.

    Args:
        layers: The network's layers in order.
    """

    def __init__(self, layers: list[keras.layers.Layer]):
        self.layers = layers
        self.dense_layers = [layer for layer in layers if isinstance(layer, keras.layers.Dense)]

    @classmethod
    def of(cls, network: keras.Model) -> "DenseChain | None":
        """The network as a chain, or None where it is none.

        Layers that mix examples, draw numbers, regularise, or compute in another dtype than that of
        their weights are taken for none.
        """
        # A subclass may compute otherwise than layer by layer.
        if not type(network).__module__.startswith("keras.") or not network.built:
            return None
        layers = [x for x in network.layers if not isinstance(x, keras.layers.InputLayer)]
        if not _are_chained(network, layers) or not all(_fits(layer) for layer in layers):
            return None
        return cls(layers)

    def holds(self, variables: list[keras.Variable]) -> bool:
        """Whether these, in their order, are kernel and bias of one dense layer after another."""
        return [id(v) for v in variables] == [id(v) for v in self.variables()]

    def variables(self) -> list[keras.Variable]:
        """Kernel and bias of one dense layer after another."""
        return [v for layer in self.dense_layers for v in layer.trainable_variables]

    def forward(self, inputs: tf.Tensor, tape: tf.GradientTape) -> tuple[tf.Tensor, Pass]:
        """Logits [n, classes] of inputs [n, ...], and the pass.

        Args:
            inputs: Raw inputs.
            tape: Watches the first dense layer's outputs, so that it can differentiate by all.
        """
        x = inputs
        layer_inputs: list[tf.Tensor] = []
        outputs: list[tf.Tensor] = []
        for layer in self.layers:
            if layer not in self.dense_layers:
                x = self.between(layer, x)
                continue
            x = tf.cast(x, layer.compute_dtype)
            layer_inputs.append(x)
            x = self.dense(layer, x)
            if not outputs:
                tape.watch(x)
            outputs.append(x)
            x = layer.activation(x)
        return x, Pass(layer_inputs, outputs)

    def between(self, layer: keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
        """What a layer without weights to train makes of x [n, ...]."""
        return layer(x)

    def dense(self, layer: keras.layers.Dense, x: tf.Tensor) -> tf.Tensor:
        """What a dense layer makes of x [n, inputs] before its activation: [n, units]."""
        x = tf.matmul(x, layer.kernel.value)
        return tf.nn.bias_add(x, layer.bias.value) if layer.use_bias else x

    def by_rows(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """X Y^T [n, k] of x [n, m] and y [k, m]."""
        return tf.matmul(x, y, transpose_b=True)

    def slopes(
        self, inputs: tf.Tensor, loss_of: Callable[[tf.Tensor], tuple[tf.Tensor, Any]]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], Any]:
        """A pass forth and back.

        Args:
            inputs: Raw inputs [n, ...].
            loss_of: From logits [n, classes] to the loss and anything else; losses of several
                networks are differentiated each by its own.

        Returns:
            A of each layer, D of each layer, and what else `loss_of` returned.
        """
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            logits, passed = self.forward(inputs, tape)
            loss, found = loss_of(logits)
        return passed.inputs, tape.gradient(loss, passed.outputs), found

    def products(self, inputs: list[tf.Tensor], slopes: list[tf.Tensor], split: int) -> Products:
        """Inner products of two gradients whose examples lie one after the other in a pass.

        Args:
            inputs: A of each layer.
            slopes: D of each layer.
            split: Number of examples of the first gradient.
        """

        def each(rows: slice, others: slice) -> tf.Tensor:
            total = tf.zeros((), slopes[0].dtype)
            for layer, a, d in zip(self.dense_layers, inputs, slopes, strict=True):
                found = self.by_rows(a[..., rows, :], a[..., others, :])
                if layer.use_bias:
                    found += 1.0
                found *= self.by_rows(d[..., rows, :], d[..., others, :])
                total += tf.cast(found, total.dtype)
            return total

        # In two parts, which hold all that is asked for: on a CPU they take less time than the
        # product of all rows by all rows.
        first, second = slice(None, split), slice(split, None)
        by_all, by_second = each(first, slice(None)), each(second, second)
        return Products(
            tf.reduce_sum(by_all[..., second], axis=[-2, -1]),
            tf.reduce_sum(by_all[..., first], axis=[-2, -1]),
            tf.reduce_sum(by_second, axis=[-2, -1]),
        )

    def factors(
        self, inputs: list[tf.Tensor], slopes: list[tf.Tensor], weights: tf.Tensor | None = None
    ) -> Factors:
        """The sum over examples of weight times gradient, as its factors.

        Args:
            inputs: A of each layer.
            slopes: D of each layer.
            weights: [n]; None for ones.
        """
        if weights is not None:
            slopes = [d * tf.cast(weights, d.dtype)[..., None] for d in slopes]
        return Factors(inputs, slopes, [layer.use_bias for layer in self.dense_layers])


def _half_square(x: tf.Tensor) -> tf.Tensor:
    """Half of the squared Frobenius norm of x [n, m]; of each of a stack [s, n, m], [s]."""
    if x.shape.rank == 2:
        return tf.nn.l2_loss(x)
    return tf.reduce_sum(tf.square(x), axis=[-2, -1]) / 2


def _are_chained(network: keras.Model, layers: list[keras.layers.Layer]) -> bool:
    """Whether each layer is used once, on what the one before it puts out."""
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
    if not isinstance(layer, keras.layers.Dense):
        return type(layer) in _ROW_BY_ROW and not layer.trainable_variables
    regular = (layer.kernel_regularizer, layer.bias_regularizer, layer.activity_regularizer)
    return (
        type(layer) is keras.layers.Dense
        and layer.trainable
        and not any(regular)
        and layer.compute_dtype == layer.variable_dtype
        and len(layer.input.shape) == 2
        and not layer.lora_enabled
    )
