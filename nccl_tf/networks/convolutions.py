"""Whether a network convolves: what tells the CIFAR defaults of a method from its MNIST ones."""

import keras


def has_convolutions(network: keras.Model) -> bool:
    """Whether a trainable variable of the network has the four axes of a two-dimensional kernel."""
    return any(len(v.shape) == 4 for v in network.trainable_variables)
