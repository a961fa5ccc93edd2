"""A running average of a network's weights, which is a network itself."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from nccl_tf.learner.growth import Growth


class AveragedNetwork:
    """Copies of a network's variables, on which the network can be run.

    Trainable ones are averages over steps. The others, such as the moving averages of batch
    normalisation, belong to the average alone: its own passes in training move them.

    It is not a Keras object, so a model that holds one does not track the variables twice.

    Args:
        network: The network; at first the copies are equal to it.
        make: Makes a variable of zeros, from a number, a shape and a dtype.
    """

    def __init__(self, network: keras.Model, make: Callable[..., keras.Variable]):
        self.network = network
        self.copies = [make(i, v.shape, v.dtype) for i, v in enumerate(network.variables)]
        self.start()

    def start(self) -> None:
        """Take the values of the network as they are."""
        for variable, copy in self._pairs():
            copy.assign(variable.value)

    def grow(self, growth: Growth) -> None:
        """Follow a head that has grown, with the new weights as they are."""
        growth.per_weight(self.copies, self.network.variables, fill=None)

    def in_place(self) -> keras.StatelessScope:
        """A scope in which the network has the values of the copies; it assigns nothing."""
        return keras.StatelessScope([(v, tf.convert_to_tensor(c.value)) for v, c in self._pairs()])

    def run(self, forward: Callable[[], tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """What a forward pass makes.

        Args:
            forward: Runs the network.

        Returns:
            What it returns, and what the copies become by the pass itself, in their order.
        """
        with self.in_place() as scope:
            logits = forward()
        values = [scope.get_current_value(variable) for variable in self.network.variables]
        return logits, [tf.convert_to_tensor(value) for value in values]

    def follow(self, keep: tf.Tensor, passed: Sequence[tf.Tensor]) -> None:
        """copy <- keep copy + (1 - keep) variable for what is trainable.

        Args:
            keep: Scalar in [0, 1].
            passed: What the copies became in this step's pass, for all else; empty without one.
        """
        for i, (variable, copy) in enumerate(self._pairs()):
            if variable.trainable:
                share = tf.cast(keep, copy.dtype)
                copy.assign(share * copy.value + (1 - share) * variable.value)
            elif passed:
                copy.assign(passed[i])

    def _pairs(self) -> list[tuple[keras.Variable, keras.Variable]]:
        return list(zip(self.network.variables, self.copies, strict=True))
