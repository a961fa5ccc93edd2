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
        values = [v.value for v in self.variables]
        split = len(self._network.trainable_variables)
        outputs, _ = self._network.stateless_call(
            values[:split], values[split:], inputs, training=False
        )
        return outputs

    def grow(self, growth: Growth) -> None:
        """Grow by zeros where the network has grown."""
        growth.per_weight(self.variables, self._originals())

    def _originals(self) -> list[keras.Variable]:
        return [*self._network.trainable_variables, *self._network.non_trainable_variables]
