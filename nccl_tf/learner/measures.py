"""What is measured: means of a step's logs, outputs at test with NaN, counts by class, metrics."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, rows_with_nan, split_inputs
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
BATCH = 1000
"""Examples that `confusion` takes at once."""

# ---- logs of steps -----------------------------------------------------------------------------


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


# ---- outputs at test ---------------------------------------------------------------------------


class NanCount:
    """A count of the evaluated examples with NaN in inputs or outputs.

    It is no Keras object, because it is no state of the learner that holds it.

    Args:
        gather: From the part of a batch that was delivered here to the whole of it, as the devices
            of a learner gather it.
    """

    def __init__(self, gather: Callable[[Batch], Batch]) -> None:
        self._gather = gather
        self._count = keras.Variable(
            0, dtype="int64", trainable=False, autocast=False, name="nan_examples"
        )

    def see(self, outputs: tf.Tensor, weights: tf.Tensor) -> None:
        """Count the examples with NaN in their outputs. Graph code.

        Args:
            outputs: [n, ...], of `outputs_at_test`.
            weights: [n], 0 for padding.
        """
        has_nan = tf.reduce_any(tf.math.is_nan(outputs), axis=list(range(1, outputs.shape.rank)))
        flags = tf.cast(has_nan, tf.int64)
        whole = self._gather(Batch(flags, flags, flags, tf.cast(weights, tf.float32)))
        self.add(tf.math.count_nonzero((whole.labels > 0) & (whole.weights != 0)))

    def add(self, count: tf.Tensor) -> None:
        """Add examples with NaN, int64 scalar. Graph code."""
        self._count.assign(self._count.value + count)

    def warning(self) -> str | None:
        """What to say of the examples counted so far, which are forgotten; None for none."""
        count = int(self._count.numpy())
        if not count:
            return None
        self._count.assign(0)
        return (
            f"{count} of the evaluated examples ha{'s' if count == 1 else 've'} NaN in inputs or "
            "outputs: accuracy counts them as wrong, and the loss is NaN; fill or drop missing "
            "values first, or look for weights that are not finite"
        )


def outputs_at_test(model: Callable[..., tf.Tensor], inputs: Any) -> tf.Tensor:
    """The outputs of a model at test, and NaN for an example with NaN in its inputs. Graph code.

    Args:
        model: From inputs, and `training`, to outputs [n, ...].
        inputs: [n, ...], or `{"inputs": inputs, "task": task ids}`.
    """
    outputs = model(inputs, training=False)
    has_nan = rows_with_nan(split_inputs(inputs)[0])
    if has_nan is None:
        return outputs
    has_nan = tf.reshape(has_nan, [-1] + [1] * (outputs.shape.rank - 1))
    return tf.where(has_nan, tf.constant(np.nan, outputs.dtype), outputs)


def confusion(
    model: Callable[..., tf.Tensor],
    inputs: Any,
    labels: tf.Tensor,
    tasks: tf.Tensor,
    classes: int,
    at_once: int,
) -> tf.Tensor:
    """How examples are classified: counts, int64 [classes, classes + 1]. Graph code.

    Args:
        model: As for `outputs_at_test`.
        inputs: [n, ...].
        labels: Their classes, int64 [n].
        tasks: int64 [n].
        classes: Their number.
        at_once: Batches that are computed at the same time.

    Returns:
        Rows are right classes and columns predicted ones; the last column has examples with NaN.
    """

    def add(start: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, ...]:
        part = slice(start, start + BATCH)
        some = tf.nest.map_structure(lambda column: column[part], inputs)
        logits = outputs_at_test(model, {"inputs": some, "task": tasks[part]})
        is_nan = tf.reduce_any(tf.math.is_nan(logits), axis=1)
        found = tf.where(is_nan, tf.constant(classes, tf.int64), tf.argmax(logits, axis=1))
        cells = tf.cast(labels[part] * (classes + 1) + found, tf.int32)
        size = classes * (classes + 1)
        here = tf.math.bincount(cells, minlength=size, maxlength=size, dtype=tf.int64)
        return start + BATCH, counts + tf.reshape(here, tf.shape(counts))

    count = tf.shape(labels)[0]
    nothing = tf.zeros([classes, classes + 1], tf.int64)
    _, counts = tf.while_loop(
        lambda i, _: i < count, add, (0, nothing), parallel_iterations=at_once
    )
    return counts


# ---- metrics -----------------------------------------------------------------------------------


def wrapped_metric(metric: Any, outputs: int, from_logits: bool) -> Any:
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


def check_metric(
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
        metric.update_state(labels, loss.metric_outputs(scores, labels), sample_weight=weights)
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
