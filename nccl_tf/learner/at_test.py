"""The outputs of a learner at test, and its examples with NaN."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, rows_with_nan, split_inputs
from nccl_tf.learner.data import FitData


class AtTest:
    """Outputs at test, where NaN in an example's inputs or outputs is seen, counted and told.

    It is no Keras object, because the count is no state of the learner.

    Args:
        learner: The learner.
    """

    def __init__(self, learner: keras.Model) -> None:
        self._learner = learner
        self._nan_examples = keras.Variable(
            0, dtype="int64", trainable=False, autocast=False, name="nan_examples"
        )

    def outputs(self, inputs: Any) -> tf.Tensor:
        """As `call` at test, and NaN for an example with NaN in its inputs. Graph code.

        Args:
            inputs: [n, ...], or `{"inputs": inputs, "task": task ids}`.
        """
        outputs = self._learner(inputs, training=False)
        has_nan = rows_with_nan(split_inputs(inputs)[0])
        if has_nan is None:
            return outputs
        has_nan = tf.reshape(has_nan, [-1] + [1] * (outputs.shape.rank - 1))
        return tf.where(has_nan, tf.constant(np.nan, outputs.dtype), outputs)

    def counted_outputs(self, inputs: Any, weights: tf.Tensor) -> tf.Tensor:
        """As `outputs`, with its examples with NaN counted. Graph code.

        Args:
            inputs: As for `outputs`.
            weights: [n], 0 for padding.
        """
        outputs = self.outputs(inputs)
        has_nan = tf.reduce_any(tf.math.is_nan(outputs), axis=list(range(1, outputs.shape.rank)))
        flags = tf.cast(has_nan, tf.int64)
        columns = Batch(flags, flags, flags, tf.cast(weights, tf.float32))
        found = self._learner.devices.gather(columns)
        counted = (found.labels > 0) & (found.weights != 0)
        self.count_nan(tf.math.count_nonzero(counted))
        return outputs

    def confusion(self, x: Any, y: Any, task_id: int | None = None) -> tf.Tensor:
        """As `Learner.accuracy`, but counts of examples: int64 [classes, classes + 1].

        It is on its device. Rows are right classes and columns predicted ones; the last column has
        examples with NaN.
        """
        return self._learner._confusion(FitData.of_arrays(x, y), task_id)

    def count_nan(self, count: tf.Tensor) -> None:
        """Count examples with NaN. Graph code."""
        self._nan_examples.assign(self._nan_examples.value + count)

    def tell(self) -> None:
        """Tell of the examples with NaN, once for a learner, and forget them."""
        count = int(self._nan_examples.numpy())
        if not count:
            return
        self._nan_examples.assign(0)
        self._learner.warn_once(
            "nan",
            f"{count} of the evaluated examples ha{'s' if count == 1 else 've'} NaN in inputs or "
            "outputs: accuracy counts them as wrong, and the loss is NaN; fill or drop missing "
            "values first, or look for weights that are not finite",
        )
