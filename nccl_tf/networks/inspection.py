"""What a network is made of: its features, its head, its convolutions."""

import keras

from nccl_tf.errors import UserError


class FeaturesAndHead:
    """The two parts of a network, made of the network's own layers.

    Not a Keras object, so that a model which holds one has the layers in its network alone.

    Args:
        network: A Functional or Sequential model from images to logits that ends in a dense layer.

    Attributes:
        features: Keras model from images to what enters the last layer, [n, width].
        head: The last layer; it makes logits [n, classes] of features.
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
    """Whether a trainable variable of the network has the four axes of a two-dimensional kernel."""
    return any(len(v.shape) == 4 for v in network.trainable_variables)
