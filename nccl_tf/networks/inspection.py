"""Inspecting networks: features, head and convolutions."""

import keras

from nccl_tf.errors import UserError


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


def has_convolutions(network: keras.Model) -> bool:
    """Whether the network has a trainable two-dimensional convolution kernel (four axes)."""
    return any(len(v.shape) == 4 for v in network.trainable_variables)
