"""Networks of dense layers, whose gradients can be weighed without forming them.

The gradient of a batch by a dense layer's kernel is A^T D, with A [n, inputs] the layer's inputs
and D [n, units] the gradients by its outputs. Inner products of two such gradients follow from
products of the rows, <A_I^T D_I, A_J^T D_J> = sum_ij (A_I A_J^T)_ij (D_I D_J^T)_ij, and any sum
w_I A_I^T D_I + w_J A_J^T D_J is one product of A with D's rows scaled.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from nccl_tf.gradients import Products
from nccl_tf.learner.fitting.compile_checks import check_learns
from nccl_tf.networks.layers import SubtractMeanImage

_ROW_BY_ROW = (
    keras.layers.Rescaling, keras.layers.Normalization, SubtractMeanImage, keras.layers.Flatten,
    keras.layers.Reshape, keras.layers.Activation, keras.layers.ReLU,
)  # fmt: skip
"""Layers that treat every example for itself, draw nothing and have nothing to train."""


class ForwardPass(NamedTuple):
    """A pass of n examples through the dense layers, a tensor per layer.

    Attributes:
        inputs: A, [n, inputs].
        outputs: Z = A W + b before the activation, [n, units].
    """

    inputs: list[tf.Tensor]
    outputs: list[tf.Tensor]


class Factors(NamedTuple):
    """A gradient whose part for a kernel is A^T D, and for a bias the sum of D's rows.

    Attributes:
        inputs: A of each layer, [n, inputs].
        output_gradients: D of each layer, [n, units].
        biased: Whether each layer has a bias.
    """

    inputs: list[tf.Tensor]
    output_gradients: list[tf.Tensor]
    biased: list[bool]

    def gradients(self) -> list[tf.Tensor]:
        """A tensor per trainable variable."""
        gradients = []
        for a, d, biased in zip(*self, strict=True):
            gradients.append(tf.matmul(a, d, transpose_a=True))
            if biased:
                gradients.append(tf.reduce_sum(d, axis=0))
        return gradients

    def size(self) -> tf.Tensor:
        """A scalar that is finite only where the gradient is: |A^T D| <= |A| |D| (Frobenius)."""
        norms = [
            tf.nn.l2_loss(a) * tf.nn.l2_loss(d)
            for a, d in zip(self.inputs, self.output_gradients, strict=True)
        ]
        return tf.add_n(norms)

    def descend(self, variables: Sequence[keras.Variable], rate: tf.Tensor) -> None:
        """x <- x - rate * gradient, with the rate on the rows, so that kernels are read once less.

        Args:
            variables: The trainable variables, in the order of `gradients`.
            rate: Scalar.
        """
        scaled = [d * tf.cast(rate, d.dtype) for d in self.output_gradients]
        parts = self._replace(output_gradients=scaled).gradients()
        for variable, part in zip(variables, parts, strict=True):
            variable.value.assign_sub(part)


class FactoredGradient(list[tf.Tensor]):
    """A gradient, a tensor per trainable variable, that knows its factors.

    What is made of it, scaled or clipped, is a plain list without factors.

    Args:
        factors: Its factors.
        size: A scalar that is finite only where the gradient is; None for `factors.size()`.
    """

    def __init__(self, factors: Factors, size: tf.Tensor | None = None):
        super().__init__(factors.gradients())
        self.factors = factors
        self.size = factors.size() if size is None else size


class DenseChain:
    """A network that is one chain of dense layers and of layers without weights between them.

    `DenseChain.from_network` says whether a network is one.

    Args:
        layers: The network's layers in order.
    """

    def __init__(self, layers: list[keras.layers.Layer]):
        self.layers = layers
        self.dense_layers = [layer for layer in layers if isinstance(layer, keras.layers.Dense)]

    @classmethod
    def from_network(cls, network: keras.Model) -> "DenseChain | None":
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

    def forward(self, inputs: tf.Tensor, tape: tf.GradientTape) -> tuple[tf.Tensor, ForwardPass]:
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
                x = layer(x)
                continue
            x = tf.cast(x, layer.compute_dtype)
            layer_inputs.append(x)
            x = self.dense(layer, x)
            if not outputs:
                tape.watch(x)
            outputs.append(x)
            x = layer.activation(x)
        return x, ForwardPass(layer_inputs, outputs)

    def dense(self, layer: keras.layers.Dense, x: tf.Tensor) -> tf.Tensor:
        """What a dense layer makes of x [n, inputs] before its activation: [n, units]."""
        x = tf.matmul(x, layer.kernel.value)
        return tf.nn.bias_add(x, layer.bias.value) if layer.use_bias else x

    def output_gradients(
        self, inputs: tf.Tensor, loss_of: Callable[[tf.Tensor], tuple[tf.Tensor, Any]]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], Any]:
        """A forward and a backward pass.

        Args:
            inputs: Raw inputs [n, ...].
            loss_of: From logits [n, classes] to the loss and anything else.

        Returns:
            A of each layer, D of each layer, and what else `loss_of` returned.
        """
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            logits, passed = self.forward(inputs, tape)
            loss, more = loss_of(logits)
        return passed.inputs, tape.gradient(loss, passed.outputs), more

    def products(
        self, inputs: list[tf.Tensor], output_gradients: list[tf.Tensor], split: tf.Tensor
    ) -> Products:
        """Inner products of two gradients whose examples lie one after the other in a pass.

        Args:
            inputs: A of each layer.
            output_gradients: D of each layer.
            split: Number of examples of the first gradient.
        """

        def products_of(rows: slice, others: slice) -> tf.Tensor:
            total = tf.zeros((), output_gradients[0].dtype)
            for layer, a, d in zip(self.dense_layers, inputs, output_gradients, strict=True):
                product = tf.matmul(a[rows], a[others], transpose_b=True)
                if layer.use_bias:
                    product += 1.0
                product *= tf.matmul(d[rows], d[others], transpose_b=True)
                total += tf.cast(product, total.dtype)
            return total

        # In two parts, which hold all that is asked for: on a CPU they take less time than the
        # product of all rows by all rows.
        first, second = slice(None, split), slice(split, None)
        by_all, by_second = products_of(first, slice(None)), products_of(second, second)
        return Products(
            tf.reduce_sum(by_all[:, second]),
            tf.reduce_sum(by_all[:, first]),
            tf.reduce_sum(by_second),
        )

    def factors(
        self,
        inputs: list[tf.Tensor],
        output_gradients: list[tf.Tensor],
        weights: tf.Tensor | None = None,
    ) -> Factors:
        """The sum over examples of weight times gradient, as its factors.

        Args:
            inputs: A of each layer.
            output_gradients: D of each layer.
            weights: [n]; None for ones.
        """
        if weights is not None:
            output_gradients = [d * tf.cast(weights, d.dtype)[:, None] for d in output_gradients]
        return Factors(inputs, output_gradients, [layer.use_bias for layer in self.dense_layers])


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
    if layer.activity_regularizer:
        return False
    if not isinstance(layer, keras.layers.Dense):
        return type(layer) in _ROW_BY_ROW and not layer.trainable_variables
    return (
        type(layer) is keras.layers.Dense
        and layer.trainable
        and not (layer.kernel_regularizer or layer.bias_regularizer)
        and layer.compute_dtype == layer.variable_dtype
        and len(layer.input.shape) == 2
        and not layer.lora_enabled
    )


def gradient_size(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """float32 scalar that is finite only where every entry of the gradients is."""
    if isinstance(gradients, FactoredGradient):
        return tf.cast(gradients.size, tf.float32)
    check_learns(gradients)
    return tf.add_n([tf.cast(tf.nn.l2_loss(g), tf.float32) for g in gradients])


def descend(
    variables: Sequence[keras.Variable], gradients: Sequence[tf.Tensor], rate: tf.Tensor
) -> None:
    """x <- x - rate * gradient in as few passes over the weights as the gradient allows.

    Args:
        variables: The trainable variables.
        gradients: A tensor for each.
        rate: Scalar.
    """
    if isinstance(gradients, FactoredGradient):
        gradients.factors.descend(variables, rate)
        return
    for variable, gradient in zip(variables, gradients, strict=True):
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.value.handle, alpha=tf.cast(rate, variable.dtype), delta=gradient
        )


def is_plain_sgd(optimizer: Any, variables: Iterable[Any]) -> bool:
    """Whether the optimizer does x <- x - learning_rate * gradient, and nothing more."""
    if type(optimizer) is not keras.optimizers.SGD:
        return False
    settings = optimizer.get_config()
    more = set(settings) - {"name", "learning_rate", "ema_momentum"}
    # The optimizer is what holds a weight to its constraint.
    constrained = any(v.constraint is not None for v in variables)
    return not constrained and not any(settings[name] for name in more)
