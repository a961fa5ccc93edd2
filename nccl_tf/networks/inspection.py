"""Inspecting networks: features, head and convolutions."""

from typing import Any

import keras

from nccl_tf.errors import UserError

_PROBABILITIES = ("softmax", "sigmoid", "hard_sigmoid")

_KEEPS_VALUES = (
    keras.layers.Dropout, keras.layers.Flatten, keras.layers.Identity, keras.layers.Reshape,
)  # fmt: skip


class FeaturesAndHead:
    """The feature extractor and the head of a network; both share the network's layers.

    It is not a Keras object, so a model that holds one does not track the layers a second time.

    Args:
        network: A Functional or Sequential model from images to logits that ends in a dense layer.

    Attributes:
        features: Keras model from images to the inputs of the last layer, [n, width].
        head: The last layer, from features to logits [n, classes].
        width: Number of features.

    Raises:
        UserError: The network is another kind of model, or its last layer is not dense.
    """

    def __init__(self, network: keras.Model):
        head = network.layers[-1] if getattr(network, "inputs", None) else None
        if not isinstance(head, keras.layers.Dense) or len(head.input.shape) != 2:
            last = type(network if head is None else head).__name__
            raise UserError(
                f"received a network that ends in {last}; expected a Functional or Sequential "
                "model that ends in a Dense layer on one vector of features for each image"
            )
        self.features = keras.Model(network.inputs, head.input)
        self.head = head
        self.width = int(head.input.shape[-1])


def check_network(network: Any) -> None:
    """Refuse what is no network with inputs of a known form and one output.

    Raises:
        UserError: It is no Keras model, it does not know its shapes, or it has several outputs.
    """
    name = type(network).__name__
    if not isinstance(network, keras.Model):
        raise UserError(
            f"received a {name} as network, expected a keras.Model from inputs to one output, such "
            "as keras.Sequential([keras.Input(shape), ..., keras.layers.Dense(classes)])"
        )
    if not getattr(network, "outputs", None):
        raise UserError(
            f"received the network {network.name!r} of class {name}, which does not know the "
            "shapes of its inputs and outputs: begin a Sequential with keras.Input(shape); wrap "
            "one of your own: inputs = keras.Input(shape); keras.Model(inputs, model(inputs))"
        )
    # A list or a dictionary of one output is not its tensor; a Sequential has no `output`.
    is_sequential = isinstance(network, keras.Sequential)
    outputs = network.outputs if is_sequential else network.output
    if isinstance(outputs, (list, tuple, dict)) and not (is_sequential and len(outputs) == 1):
        raise UserError(
            f"received the network {network.name!r}, whose output is a {type(outputs).__name__} of "
            f"{len(outputs)}, expected one tensor: take one of them, "
            "keras.Model(network.inputs, output), or join them with keras.layers.Concatenate"
        )


def check_runs_under_xla(network: Any) -> None:
    """Refuse a network of strings, which XLA does not know.

    Raises:
        UserError: An input is of strings.
    """
    strings = [tensor.name for tensor in network.inputs if tensor.dtype == "string"]
    if strings:
        raise UserError(
            f"received jit_compile=True for a network whose input {strings[0]!r} is of strings, "
            "which XLA does not know: leave jit_compile out, or turn text into numbers before fit, "
            "vectorizer(texts), and build the network from these"
        )


def check_ends_in_logits(network: keras.Model) -> None:
    """Refuse a network whose last activation makes probabilities.

    Sequential and Functional models are looked into, nested ones too; of others nothing is known.

    Raises:
        UserError: It ends in softmax or sigmoid.
    """
    name = last_activation(network)
    if name in _PROBABILITIES:
        raise UserError(
            f"received a network that ends in {name}, but a learner takes logits and applies the "
            f"softmax itself: leave the {name} out of the last layer"
        )


def last_activation(network: Any) -> str | None:
    """The name of the activation that a network ends in, or None where none is known.

    Args:
        network: A Keras model or layer.
    """
    layer = network
    if isinstance(layer, keras.Model):
        if not getattr(layer, "outputs", None) or len(layer.outputs) != 1:
            return None
        return _activation_behind(layer.outputs[0])
    if isinstance(layer, keras.layers.Softmax):
        return "softmax"
    function = getattr(layer, "activation", None)
    if function is None and not isinstance(layer, keras.layers.Layer):
        return type(layer).__name__.lower()
    name = getattr(function, "__name__", None)
    return None if name == "linear" else name


def _activation_behind(tensor: Any) -> str | None:
    """The last activation on the way to a symbolic tensor, through layers that keep its values."""
    operation, node, _ = tensor._keras_history
    inputs = operation._inbound_nodes[node].input_tensors
    if len(inputs) != 1:
        return None
    linear = getattr(getattr(operation, "activation", None), "__name__", None) == "linear"
    keeps = isinstance(operation, _KEEPS_VALUES)
    if keeps or (isinstance(operation, keras.layers.Activation) and linear):
        return _activation_behind(inputs[0])
    return last_activation(operation)


def has_convolutions(network: keras.Model) -> bool:
    """Whether the network has a trainable two-dimensional convolution kernel (four axes)."""
    return any(len(v.shape) == 4 for v in network.trainable_variables)
