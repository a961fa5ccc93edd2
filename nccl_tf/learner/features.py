"""The base of the methods that keep statistics of a frozen network's features."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, rows_with_nan
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Logits, Step
from nccl_tf.networks.inspection import FeaturesAndHead


class FeatureLearner(Learner):
    """Learns statistics of features, one pass over the examples, and no weight by gradients.

    For pretrained networks: none of the weights changes, and neither optimizer nor learning rate
    has an effect. A subclass makes its `statistics` and says what examples make of them (`learned`)
    and what they predict (`scores`). Examples count one by one in order, however they are cut
    into batches and tasks; padding does not, nor does the size of a weight above 0. Further passes
    of a `fit` count nothing, unless `stores` is "every_epoch". The loss is that of a batch's scores
    before the batch is learned.

    Args:
        network: A functional or Sequential model whose last layer is dense; that one's inputs are
            the features, and its weights are not used.
        **kwargs: As for `Learner`.

    Raises:
        UserError: The network ends otherwise, or there are `known_classes`.
    """

    _owns_private_names = True
    _parts: FeaturesAndHead

    cannot: ClassVar[Mapping[str, str]] = {
        "loss": "keeps statistics of each class, and learns from no loss",
        "class_weight": "keeps statistics of each class by itself",
        "known_classes": "predicts a class by statistics, which it has of the stream's alone",
    }
    statistics: tuple[keras.Variable, ...] = ()
    """The variables that `learned` has new values of."""

    def __init__(self, network: keras.Model, **kwargs: Any):
        super().__init__(network, **kwargs)
        self._parts = FeaturesAndHead(network)
        self.width = self._parts.width

    def features(self, inputs: Any) -> tf.Tensor:
        """Inputs of the last layer, float64 [n, width], for network inputs [n, ...].

        NaN for an example with NaN in its inputs, whose step is skipped.
        """
        features = tf.cast(self._parts.features(inputs, training=False), "float64")
        has_nan = rows_with_nan(inputs)
        if has_nan is None:
            return features
        return tf.where(has_nan[:, None], tf.constant(np.nan, tf.float64), features)

    def outputs(self, inputs: Any, tasks: tf.Tensor | None, training: bool) -> tf.Tensor:
        """The scores [n, classes], before any mask."""
        return self._as_logits(self.scores(self.features(inputs)))

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """The scores [n, classes] of features [n, width], which take the place of logits."""
        raise NotImplementedError

    def scores_in_step(self, features: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        """The scores of a batch before it is learned, and new values of the last statistics."""
        return self.scores(features), ()

    def learned(
        self, features: tf.Tensor, labels: tf.Tensor, counted: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """The statistics after examples, without those of `scores_in_step`.

        Args:
            features: float64 [n, width], with zeros for padding.
            labels: int64 [n].
            counted: bool [n]; padding is not.
        """
        raise NotImplementedError

    def serving_outputs(self, network: keras.Model, inputs: Any, task: Any) -> Any:
        features = FeaturesAndHead(network).features(inputs, training=False)
        scores = self.serving_scores(features)
        return self._masked_for_serving(keras.ops.cast(scores, self._logits_dtype.name), task)

    def serving_scores(self, features: Any) -> Any:
        """The scores of symbolic features, by Keras layers with the current statistics."""
        raise NotImplementedError

    def _as_logits(self, scores: tf.Tensor) -> tf.Tensor:
        return tf.cast(scores, self._logits_dtype)

    def rows_of_classes(self, labels: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
        """float64 [n, classes]: 1 at the class of each example, nothing for padding."""
        rows = tf.one_hot(labels, self.num_classes, dtype=tf.float64)
        return rows * tf.cast(counted, rows.dtype)[:, None]

    def learn(self, batch: Batch) -> Step:
        """The loss of the batch, with the new statistics as state."""
        features = self.features(batch.inputs)
        scores, solved = self.scores_in_step(features)
        raw = self._as_logits(scores)
        logits = Logits(raw, self.masked(raw, batch))
        _, logs = self.training_loss(logits, batch)
        counted = (batch.weights > 0) & self.stores_now.value
        features = tf.where(counted[:, None], features, 0)
        learned = self.learned(features, batch.labels, counted)
        return Step([], logits, logs, state=(*learned, *solved))

    def apply_step(self, step: Step) -> None:
        for variable, value in zip(self.statistics, step.state, strict=True):
            variable.assign(value)


def dense_of(kernel: Any, bias: Any = None, activation: str | None = None) -> keras.layers.Layer:
    """A dense layer that computes in float64, with a kernel [width, units] and a bias [units]."""
    layer = keras.layers.Dense(
        kernel.shape[1], activation, use_bias=bias is not None, dtype="float64"
    )
    layer.build((None, kernel.shape[0]))
    parts = [kernel] if bias is None else [kernel, bias]
    layer.set_weights([keras.ops.convert_to_numpy(part) for part in parts])
    return layer
