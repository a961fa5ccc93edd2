"""The logits of a network that ends in probabilities."""

from typing import Any

import keras

from nccl_tf.errors import UserError
from nccl_tf.networks.inspection import last_activation, last_layer


def logits_of(network: keras.Model) -> keras.Model:
    """A copy of a trained network without the softmax or sigmoid that it ends in.

    Learners take logits: masks, LwF, DER++ and ER-ACE compare them. To serve probabilities again,
    put the softmax behind `serving_model()`.

    Args:
        network: A Functional or Sequential model, whose last layer may be nested; it stays
            as it is.

    Returns:
        A model with weights of its own, from the same inputs to logits.

    Raises:
        UserError: It is another kind of model, does not end in softmax or sigmoid, or does so by a
            function instead of a layer.

    Example:

    ```python
    in_use = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    learner = nccl_tf.LwF(nccl_tf.networks.logits_of(in_use), known_classes=range(3))
    learner.compile("adam")
    served = keras.Sequential([learner.serving_model(), keras.layers.Softmax()])
    ```
    """
    found = last_activation(network)
    if found not in ("softmax", "sigmoid"):
        raise UserError(
            f"received a network of type {type(network).__name__} that is not known to end in "
            "softmax or sigmoid: expected a Functional or Sequential model that does; one that "
            "ends in logits is what a learner takes"
        )
    last = last_layer(network)
    if not isinstance(last, keras.layers.Layer):
        raise UserError(
            f"received a network that ends in keras.ops.{found}: expected a layer, such as "
            "keras.layers.Softmax(); or take keras.Model(network.input, the tensor before it)"
        )

    def copied(layer: Any) -> Any:
        if layer is not last:
            return type(layer).from_config(layer.get_config())
        if isinstance(layer, keras.layers.Softmax):
            return keras.layers.Activation("linear", name=layer.name)
        return type(layer).from_config({**layer.get_config(), "activation": "linear"})

    copy = keras.models.clone_model(network, clone_function=copied, recursive=True)
    copy.set_weights(network.get_weights())
    return copy
