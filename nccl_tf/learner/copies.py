"""A second set of a network's variables: taken, averaged, put back, run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.variables import assign_all


class WeightCopy:
    """Variables beside those of a learner's network, saved with the learner; zeros until `take`.

    Where the head grows, they grow with it, by what its new weights hold.

    Args:
        network: The learner's network.
        state: Makes variables that are saved with the learner, `Learner.state`.
        name: Prefix of the variables' names.
        originals: The variables of the network to copy; None for all, in an order that does not
            change with the layers that are trainable.
        at_least: A dtype that the copies have at least, for averages of half precision; None for
            the dtype of each variable.

    Attributes:
        originals: The variables that are copied.
        variables: The copies, in the same order.
    """

    def __init__(
        self,
        network: keras.Model,
        state: Callable[..., keras.Variable],
        name: str,
        originals: Sequence[keras.Variable] | None = None,
        at_least: str | None = None,
    ):
        self._network = network
        self.originals = list(self._network.variables if originals is None else originals)
        dtypes = [
            keras.backend.result_type(v.dtype, at_least) if at_least else v.dtype
            for v in self.originals
        ]
        self.variables = [
            state(f"{name}_{i}", v, dtype, grown=v)
            for i, (v, dtype) in enumerate(zip(self.originals, dtypes, strict=True))
        ]

    def take(self, applies: tf.Tensor | bool = True) -> None:
        """Copy the values that the network has now. Graph code too.

        Args:
            applies: bool scalar; where it is False the copies stay as they are.
        """
        for copy, variable in zip(self.variables, self.originals, strict=True):
            copy.assign(tf.where(applies, tf.cast(variable.value, copy.dtype), copy.value))

    def put(self) -> None:
        """Give the network the values of the copies."""
        values = [
            tf.cast(copy.value, variable.dtype)
            for copy, variable in zip(self.variables, self.originals, strict=True)
        ]
        assign_all(self.originals, values)

    @contextmanager
    def in_network(self) -> Iterator[None]:
        """Let the network hold the copies in the body, and its own values after it."""
        before = [tf.identity(variable.value) for variable in self.originals]
        self.put()
        try:
            yield
        finally:
            assign_all(self.originals, before)

    def follow(self, keep: Any, applies: tf.Tensor) -> None:
        """copy <- copy + (1 - keep) (variable - copy). Graph code.

        Args:
            keep: Scalar in [0, 1].
            applies: bool scalar; where it is False the copies stay as they are.
        """
        for copy, variable in zip(self.variables, self.originals, strict=True):
            share = tf.constant(1 - keep, copy.dtype)
            change = share * (tf.cast(variable.value, copy.dtype) - copy.value)
            copy.assign_add(tf.where(applies, change, tf.zeros_like(change)))

    def run(self, forward: Callable[[], tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Run a forward pass on the copies; nothing is assigned.

        Args:
            forward: Runs the network.

        Returns:
            Its result, and the values that the pass itself gives the copies, such as moving
            averages of batch normalisation, in order.
        """
        pairs = zip(self.originals, self.variables, strict=True)
        with keras.StatelessScope([(v, tf.convert_to_tensor(c.value)) for v, c in pairs]) as scope:
            result = forward()
        values = [scope.get_current_value(variable) for variable in self.originals]
        return result, [tf.convert_to_tensor(value) for value in values]

    def outputs(self, inputs: Any) -> tf.Tensor:
        """Outputs of the copy for inputs [n, ...], as at test: raw logits [n, classes]."""
        return self.run(lambda: self._network(inputs, training=False))[0]
