"""A second set of a network's variables, with which it predicts as it did when they were taken."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.learner.growth import Growth


class NetworkCopy:
    """Variables of a learner that no step changes, saved with it; zeros until `take`.

    Args:
        learner: Its network is copied.
        name: Prefix of the variables' names.
    """

    def __init__(self, learner: Any, name: str):
        self._network: keras.Model = learner.network
        self.variables = [
            learner._state(f"{name}_{i}", v.shape, v.dtype, 0)
            for i, v in enumerate(self._originals())
        ]

    def take(self) -> None:
        """Copy the weights and the batch-norm statistics that the network has now."""
        for copy, variable in zip(self.variables, self._originals(), strict=True):
            copy.assign(variable.value)

    def outputs(self, inputs: Any) -> tf.Tensor:
        """What the copy makes of inputs [n, ...], as at test: raw logits [n, classes]."""
        pairs = zip(self._originals(), self.variables, strict=True)
        copies = {id(original): copy.value for original, copy in pairs}
        trainable = [copies[id(v)] for v in self._network.trainable_variables]
        others = [copies[id(v)] for v in self._network.non_trainable_variables]
        return self._network.stateless_call(trainable, others, inputs, training=False)[0]

    def grow(self, growth: Growth) -> None:
        """Grow by zeros where the network has grown."""
        growth.per_weight(self.variables, self._originals())

    def _originals(self) -> list[keras.Variable]:
        """All variables, in an order that does not change with the layers that are trainable."""
        return list(self._network.variables)
