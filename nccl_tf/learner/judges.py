"""Metrics of two classes and of one-hot rows for class numbers, and metrics that do not fit."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError, one_line

_OF_TWO_CLASSES = (
    keras.metrics.AUC, keras.metrics.Precision, keras.metrics.Recall, keras.metrics.BinaryAccuracy,
    keras.metrics.PrecisionAtRecall, keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity, keras.metrics.SpecificityAtSensitivity,
    keras.metrics.TruePositives, keras.metrics.FalsePositives, keras.metrics.TrueNegatives,
    keras.metrics.FalseNegatives,
)  # fmt: skip
_OF_ROWS = (
    keras.metrics.FBetaScore, keras.metrics.CategoricalAccuracy,
    keras.metrics.TopKCategoricalAccuracy, keras.metrics.CategoricalCrossentropy,
)  # fmt: skip
_OF_ROWS_BY_NAME = (
    keras.metrics.categorical_accuracy, keras.metrics.top_k_categorical_accuracy,
    keras.metrics.categorical_crossentropy,
)  # fmt: skip
_LETTERS = 200
"""Of the reason why a metric fails: TensorFlow's can be pages."""


def for_class_numbers(metric: Any, outputs: int, from_logits: bool) -> Any:
    """A metric that takes class numbers [n] and the outputs of a network [n, outputs].

    Of two outputs, metrics of two classes judge the probability of class 1; those of one-hot rows,
    such as F-scores, get the class as such a row. Others are returned as they are.

    Args:
        metric: A `keras.metrics.Metric`.
        outputs: Of the network.
        from_logits: Whether they are logits.
    """
    if isinstance(metric, _OF_ROWS) or getattr(metric, "_fn", None) in _OF_ROWS_BY_NAME:
        return _OfRows(metric)
    of_columns = getattr(metric, "multi_label", False) or getattr(metric, "top_k", None)
    of_columns = of_columns or getattr(metric, "class_id", None) is not None
    if outputs == 2 and isinstance(metric, _OF_TWO_CLASSES) and not of_columns:
        return _OfClassOne(metric, from_logits)
    return metric


def try_out(
    metric: keras.metrics.Metric, targets: tf.TensorSpec, outputs: Sequence[int | None], loss: Any
) -> None:
    """Update a metric once, and set it back, before anything is trained or evaluated.

    Args:
        metric: In its first state.
        targets: Of a batch, as `ExampleLoss.targets` makes them, [n, ...].
        outputs: Sides of an example's outputs; None for those of the targets.
        loss: The learner's `ExampleLoss`.

    Raises:
        UserError: The metric fails.
    """
    known = targets.shape.as_list()[1:]
    sides = [
        known[i] if side is None and i < len(known) else side for i, side in enumerate(outputs)
    ]
    # No side of an example's, so that nothing broadcasts over examples by chance.
    count = 1 + max([1, *(side or 1 for side in (*sides, *known))])
    labels = tf.zeros([count, *(side or 1 for side in known)], targets.dtype)
    scores = tf.zeros([count, *(side or 1 for side in sides)])
    ones = tf.ones([count])
    weights = loss.metric_weights(Batch(None, labels, tf.zeros([count], tf.int64), ones))
    try:
        metric.update_state(labels, loss.judged(scores, labels), sample_weight=weights)
    except Exception as error:  # A metric can raise any.
        raise UserError(
            f"received the metric {metric.name!r}, which does not fit targets of shape "
            f"{_shape(known)} and outputs of shape {_shape(sides)}{_reason(error)}: {_remedy(loss)}"
        ) from error
    metric.reset_state()


def _shape(sides: Sequence[int | None]) -> str:
    return f"[{', '.join(map(str, ('n', *sides)))}]"


def _reason(error: Exception) -> str:
    """Why a metric fails, where that is a sentence: TensorFlow names nodes and the trial's rows."""
    if isinstance(error, tf.errors.OpError):
        return ""
    return f" ({type(error).__name__}: {one_line(str(error))[:_LETTERS]})"


def _remedy(loss: Any) -> str:
    if not loss.takes_class_numbers:
        return f"take a metric of the targets of {loss.name}"
    return (
        "take one of class numbers and an output for each class, such as "
        "SparseTopKCategoricalAccuracy(k=5); AUC, Precision and Recall judge class 1 where the "
        "network has two outputs, and F1Score takes any number"
    )


class _Around(keras.metrics.Metric):
    """A metric that gets other targets and outputs than the learner's.

    Args:
        metric: That one.
    """

    def __init__(self, metric: keras.metrics.Metric):
        super().__init__(name=metric.name, dtype=metric.dtype)
        self.metric = metric
        self._direction = getattr(metric, "_direction", None)

    def result(self) -> Any:
        return self.metric.result()

    def reset_state(self) -> None:
        self.metric.reset_state()


class _OfClassOne(_Around):
    """A metric of two classes for two outputs: it gets the probability of class 1, [n]."""

    def __init__(self, metric: keras.metrics.Metric, from_logits: bool):
        super().__init__(metric)
        self._from_logits = from_logits

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        if y_pred.shape[-1] != 2:  # the head has grown
            raise ValueError(
                f"it judges the second of two outputs, and there are {y_pred.shape[-1]}"
            )
        if self._from_logits:
            logits = y_pred[..., 1] - y_pred[..., 0]
            takes_logits = getattr(self.metric, "_from_logits", False)
            judged = logits if takes_logits else tf.sigmoid(logits)
        else:
            judged = y_pred[..., 1]
        self.metric.update_state(tf.reshape(y_true, tf.shape(judged)), judged, sample_weight)


class _OfRows(_Around):
    """A metric of one-hot rows for class numbers: it gets them as such rows."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        numbers = tf.reshape(tf.cast(y_true, tf.int64), tf.shape(y_pred)[:-1])
        rows = tf.one_hot(numbers, y_pred.shape[-1], dtype=y_pred.dtype)
        self.metric.update_state(rows, y_pred, sample_weight)
