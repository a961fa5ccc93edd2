"""The logs of steps as Keras metrics."""

from collections.abc import Sequence

import keras
import tensorflow as tf


class StepMeans(keras.metrics.Metric):
    """The mean of each log of a learner's step over the steps that measured it.

    One vector for all logs, because a metric object each would cost a small step more than its
    arithmetic. `result` is a dictionary, which Keras logs name by name; a log that no step measured
    is NaN.

    Args:
        names: Names of the logs.
    """

    def __init__(self, names: Sequence[str], name: str = "step_quantities"):
        super().__init__(name=name, dtype="float32")
        self.names = tuple(names)
        self.total = self.add_variable((len(self.names),), "zeros", name="total")
        self.count = self.add_variable((len(self.names),), "zeros", name="count")

    def update_state(self, values: tf.Tensor) -> None:
        """Add a step: `values` is float32 [logs], NaN where the step did not measure."""
        known = tf.equal(values, values)  # NaN is not
        values = tf.cast(tf.where(known, values, 0.0), self.total.dtype)
        self.total.value.assign_add(values)
        self.count.value.assign_add(tf.cast(known, self.count.dtype))

    def result(self) -> dict[str, tf.Tensor]:
        means = tf.unstack(self.total.value / self.count.value)
        return dict(zip(self.names, means, strict=True))
