"""Perplexity, for language models."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.keras_private import set_direction


@keras.saving.register_keras_serializable(package="nccl_tf")
class Perplexity(keras.metrics.Metric):
    """The exponential of the mean cross-entropy over all places, by their weights: less is better.

    Without a place it is NaN.

    Args:
        from_logits: Whether outputs are logits; else they are probabilities.
        name: The metric's name.
        dtype: Its dtype; None for Keras's `floatx`.

    Example:

    ```python
    metric = nccl_tf.Perplexity()
    print(float(metric(np.array([[0, 1]]), np.zeros((1, 2, 4)))))  # of even odds over four: 4
    ```
    """

    def __init__(self, from_logits: bool = True, name: str = "perplexity", dtype: Any = None):
        super().__init__(name=name, dtype=dtype)
        self.from_logits = bool(from_logits)
        set_direction(self, "down")
        self.total = self.add_variable((), keras.initializers.Zeros(), name="total")
        self.count = self.add_variable((), keras.initializers.Zeros(), name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add places.

        Args:
            y_true: Class numbers [n, ...].
            y_pred: Outputs [n, ..., classes].
            sample_weight: Weights [n, ...], or [n] for those of examples.
        """
        losses = tf.cast(
            keras.losses.sparse_categorical_crossentropy(
                y_true, tf.cast(y_pred, self.dtype), from_logits=self.from_logits
            ),
            self.dtype,
        )
        weights = tf.ones_like(losses)
        if sample_weight is not None:
            given = tf.cast(sample_weight, losses.dtype)
            further = [1] * (losses.shape.rank - given.shape.rank)
            weights *= tf.reshape(given, tf.concat([tf.shape(given), further], 0))
        self.total.assign_add(tf.reduce_sum(tf.where(weights > 0, weights * losses, 0)))
        self.count.assign_add(tf.reduce_sum(weights))

    def result(self) -> tf.Tensor:
        return tf.exp(self.total.value / self.count.value)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "from_logits": self.from_logits}
