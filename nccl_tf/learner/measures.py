"""Measures of steps and tests: means of logs, outputs with NaN, counts by class, metrics."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, rows_with_nan, split_inputs
from nccl_tf.errors import UserError, named_error, one_line
from nccl_tf.keras_private import arguments_of, direction, function_of, set_direction, takes_logits

_OF_TWO_CLASSES = (
    keras.metrics.AUC, keras.metrics.Precision, keras.metrics.Recall,
    keras.metrics.PrecisionAtRecall, keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity, keras.metrics.SpecificityAtSensitivity,
    keras.metrics.TruePositives, keras.metrics.FalsePositives, keras.metrics.TrueNegatives,
    keras.metrics.FalseNegatives, keras.metrics.BinaryAccuracy,
)  # fmt: skip
_OF_ROWS = (
    keras.metrics.FBetaScore, keras.metrics.CategoricalAccuracy,
    keras.metrics.TopKCategoricalAccuracy, keras.metrics.CategoricalCrossentropy,
)  # fmt: skip
_OF_ROWS_BY_NAME = (
    keras.metrics.categorical_accuracy, keras.metrics.top_k_categorical_accuracy,
    keras.metrics.categorical_crossentropy,
)  # fmt: skip
_OF_PROBABILITIES_BY_NAME = (
    keras.metrics.binary_crossentropy, keras.metrics.categorical_crossentropy,
    keras.metrics.sparse_categorical_crossentropy, keras.metrics.binary_focal_crossentropy,
    keras.metrics.categorical_focal_crossentropy, keras.metrics.kl_divergence,
    keras.metrics.mean_squared_error, keras.metrics.mean_absolute_error,
)  # fmt: skip
"""Functions whose metrics, of classes, compare probabilities: Brier's score is a squared error."""
_WITH_A_THRESHOLD = (keras.metrics.binary_accuracy,)
_ACTIVATIONS = {"softmax": tf.nn.softmax, "sigmoid": tf.sigmoid}
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
        measured = tf.equal(values, values)  # NaN is not
        values = tf.cast(tf.where(measured, values, 0.0), self.total.dtype)
        self.total.value.assign_add(values)
        self.count.value.assign_add(tf.cast(measured, self.count.dtype))

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
        """A warning of the examples counted so far, which are forgotten; None for none."""
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
    predicted: Callable[[tf.Tensor], tf.Tensor],
    inputs: Any,
    labels: tf.Tensor,
    tasks: tf.Tensor,
    classes: int,
    at_once: int,
) -> tf.Tensor:
    """How examples are classified, in the cells that have some. Graph code.

    Args:
        model: As for `outputs_at_test`.
        predicted: From its outputs to classes, int64 [n].
        inputs: [n, ...].
        labels: Their classes, int64 [n].
        tasks: int64 [n].
        classes: Their number.
        at_once: Batches that are computed at the same time.

    Returns:
        int64 [cells, 3]: right class, predicted class, `classes` for NaN, and how many there are.
        Cells without any are left out: there are classes squared of them.
    """

    def add(number: tf.Tensor, written: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        start = number * BATCH
        part = slice(start, start + BATCH)
        some = tf.nest.map_structure(lambda column: column[part], inputs)
        logits = outputs_at_test(model, {"inputs": some, "task": tasks[part]})
        is_nan = tf.reduce_any(tf.math.is_nan(logits), axis=1)
        taken = tf.where(is_nan, tf.constant(classes, tf.int64), predicted(logits))
        return number + 1, written.write(number, labels[part] * (classes + 1) + taken)

    batches = -(-tf.shape(labels)[0] // BATCH)
    written = tf.TensorArray(tf.int64, batches, element_shape=[None], infer_shape=False)
    _, written = tf.while_loop(
        lambda number, _: number < batches, add, (0, written), parallel_iterations=at_once
    )
    # Without graphs, no array of nothing is joined.
    found = tf.cond(batches > 0, written.concat, lambda: tf.zeros([0], tf.int64))
    cells, _, counts = tf.unique_with_counts(found, tf.int64)
    return tf.stack([cells // (classes + 1), cells % (classes + 1), counts], axis=1)


# ---- metrics -----------------------------------------------------------------------------------


def wrapped_metric(
    metric: Any, outputs: int, *, numbers: bool, activation: str | None, places: int
) -> keras.metrics.Metric:
    """A metric that takes the targets of a learner and the outputs of its network, [n, ...].

    Metrics of probabilities get them where the outputs are logits; one that takes logits by itself,
    `AUC(from_logits=True)` or `Precision(thresholds=0)`, gets these. For class numbers with two
    outputs, metrics of two classes judge class 1; those of one-hot rows or of columns, such as
    F-scores and `Precision(class_id=2)`, get the class as such a row. Metrics that take examples
    alone get each place as one. Others are returned as they are.

    Args:
        metric: A `keras.metrics.Metric`.
        outputs: Of the network, for each example or place.
        numbers: Whether a target is the number of a class.
        activation: What makes probabilities of the outputs, "softmax" or "sigmoid"; None where
            they are such, or no logits.
        places: Axes of an example's places.
    """
    is_of_two = isinstance(metric, _OF_TWO_CLASSES)
    of_columns = is_of_two and bool(
        getattr(metric, "multi_label", False)
        or getattr(metric, "top_k", None)
        or getattr(metric, "class_id", None) is not None
    )
    is_of_rows = isinstance(metric, _OF_ROWS) or function_of(metric) in _OF_ROWS_BY_NAME
    rows = numbers and (is_of_rows or of_columns)
    class_one = numbers and outputs == 2 and is_of_two and not of_columns
    shown = activation if _takes_probabilities(metric) else None
    alone = bool(places) and (is_of_two or isinstance(metric, keras.metrics.FBetaScore))
    if not (rows or class_one or shown or alone):
        return metric
    steps: list[Callable[[tf.Tensor], tf.Tensor]] = []
    if class_one:
        steps.append(_second_column if activation is None else _second_logit)
    if shown is not None:
        steps.append(tf.sigmoid if class_one else _ACTIVATIONS[shown])
    return _Judged(metric, steps, rows, class_one, places)


def judges_class_one(metric: Any, outputs: int) -> bool:
    """Whether a metric judges class 1 of two, so that it matters which class that is.

    Args:
        metric: As `wrapped_metric` returns it.
        outputs: Of the network.
    """
    is_wrapped = isinstance(metric, _Judged)
    inner = metric.metric if is_wrapped else metric
    if isinstance(inner, keras.metrics.BinaryAccuracy):
        return False
    kinds = (*_OF_TWO_CLASSES, keras.metrics.FBetaScore)
    return (is_wrapped and metric.class_one) or (outputs == 1 and isinstance(inner, kinds))


def _takes_probabilities(metric: Any) -> bool:
    """Whether a metric of Keras compares outputs with probabilities."""
    if takes_logits(metric):
        return False
    function = function_of(metric)
    if function in _WITH_A_THRESHOLD:
        return _is_probability(arguments_of(metric).get("threshold"))
    if isinstance(metric, (keras.metrics.FBetaScore, keras.metrics.BinaryIoU)):
        return metric.threshold is not None and _is_probability(metric.threshold)
    if isinstance(metric, _OF_TWO_CLASSES):
        given = getattr(metric, "init_thresholds", None)
        if given is None:
            return getattr(metric, "top_k", None) is None
        return any(map(_is_probability, tf.nest.flatten(given)))
    is_error = isinstance(metric, keras.metrics.RootMeanSquaredError)
    return is_error or function in _OF_PROBABILITIES_BY_NAME


def _is_probability(threshold: float | None) -> bool:
    """Whether a threshold is one of probabilities: all of these are above 0, a half of logits."""
    return threshold is None or 0 < threshold < 1


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
    batch = Batch(None, labels, tf.zeros([count], tf.int64), ones)
    labels, weights = loss.measured(batch, scores)
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
    return f" ({one_line(named_error(error))[:_LETTERS]})"


def _remedy(loss: Any) -> str:
    if not loss.takes_class_numbers:
        return f"take a metric of the targets of {loss.name}"
    return (
        "take one of class numbers and an output for each class, such as "
        "SparseTopKCategoricalAccuracy(k=5); AUC, Precision and Recall judge class 1 where the "
        "network has two outputs, and F1Score takes any number"
    )


def _second_column(outputs: tf.Tensor) -> tf.Tensor:
    """The probability of class 1, [n], of two classes."""
    if outputs.shape[-1] != 2:  # the head has grown
        raise ValueError(f"it judges the second of two outputs, and there are {outputs.shape[-1]}")
    return outputs[..., 1]


def _second_logit(outputs: tf.Tensor) -> tf.Tensor:
    """The logit of class 1 against class 0, [n]."""
    return _second_column(outputs) - outputs[..., 0]


class _Judged(keras.metrics.Metric):
    """A metric that gets other targets and outputs than the learner's.

    Args:
        metric: That one.
        steps: What is made of the outputs, one function after the other.
        rows: Whether it gets class numbers as one-hot rows.
        class_one: Whether it judges the second of two outputs.
        places: Axes of an example's places, each of which it gets as an example.
    """

    def __init__(
        self,
        metric: keras.metrics.Metric,
        steps: Sequence[Callable[[tf.Tensor], tf.Tensor]],
        rows: bool,
        class_one: bool,
        places: int,
    ):
        super().__init__(name=metric.name, dtype=metric.dtype)
        self.metric = metric
        set_direction(self, direction(metric))
        self._steps, self._rows, self._places = tuple(steps), rows, places
        self.class_one = class_one

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        is_number = y_true.shape.rank < y_pred.shape.rank
        if self._places:
            places = tf.shape(y_pred)[:-1]
            y_pred = _as_examples(y_pred, 1)
            y_true = _as_examples(y_true, 0 if is_number else 1)
            if sample_weight is not None:
                further = [1] * (self._places + 1 - sample_weight.shape.rank)
                weights = tf.reshape(
                    sample_weight, [*tf.unstack(tf.shape(sample_weight)), *further]
                )
                sample_weight = _as_examples(tf.broadcast_to(weights, places), 0)
        for step in self._steps:
            y_pred = step(y_pred)
        if self._rows:
            numbers = tf.reshape(tf.cast(y_true, tf.int64), tf.shape(y_pred)[:-1])
            y_true = tf.one_hot(numbers, y_pred.shape[-1], dtype=y_pred.dtype)
        elif y_pred.shape.rank == 1:
            y_true = tf.reshape(y_true, tf.shape(y_pred))
        self.metric.update_state(y_true, y_pred, sample_weight)

    def result(self) -> Any:
        return self.metric.result()

    def reset_state(self) -> None:
        self.metric.reset_state()


def _as_examples(values: tf.Tensor, kept: int) -> tf.Tensor:
    """Values [n, places, ...] as [m, ...], with as many last axes as are to be kept."""
    last = values.shape[values.shape.rank - kept :]
    return tf.reshape(values, [-1, *last])
