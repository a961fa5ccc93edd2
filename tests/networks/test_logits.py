"""The logits of a trained network: what it gives before the softmax that it ends in."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from tests.networks.test_inspection import functional, sequential, sequential_of_four

layers = keras.layers
INPUTS = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")


@pytest.mark.parametrize(
    ("end", "network"),
    [
        ("softmax", sequential(layers.Dense(2, "softmax"))),
        ("softmax", sequential(layers.Dense(2), layers.Softmax())),
        ("softmax", sequential(layers.Activation("softmax"), layers.Activation("linear"))),
        ("softmax", functional(sequential_of_four("softmax"))),
        ("sigmoid", functional(layers.Activation("sigmoid"))),
    ],
)
def test_the_softmax_of_the_logits_is_what_the_network_gives(end, network):
    logits = nccl_tf.networks.logits_of(network)
    again = getattr(keras.ops, end)(logits(INPUTS))
    np.testing.assert_allclose(again, network(INPUTS), atol=1e-6)
    assert np.abs(logits(INPUTS) - network(INPUTS)).max() > 0.1


def test_the_copy_has_weights_of_its_own_and_knows_what_is_frozen():
    network = sequential(layers.Dense(2, "softmax"))
    network.layers[0].trainable = False
    before = np.array(network(INPUTS))
    logits = nccl_tf.networks.logits_of(network)
    assert len(logits.trainable_variables) == 2
    logits.set_weights([0 * w for w in logits.get_weights()])
    np.testing.assert_array_equal(network(INPUTS), before)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (sequential(layers.Dense(2)), "not known to end in softmax or sigmoid"),
        (functional(keras.ops.softmax), "ends in keras.ops.softmax"),
    ],
)
def test_others_are_refused(network, message):
    with pytest.raises(UserError, match=message):
        nccl_tf.networks.logits_of(network)
