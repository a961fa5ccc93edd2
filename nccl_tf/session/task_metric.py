"""Any Keras metric as the value of a task."""

from typing import Any, TypeAlias

import keras
import tensorflow as tf

from nccl_tf.batch import split_inputs
from nccl_tf.errors import UserError, checked_name
from nccl_tf.keras_private import direction, graph
from nccl_tf.learner.checks import check_ids, check_numbers
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.measures import check_metric, outputs_at_test
from nccl_tf.learner.preprocessor import prepared
from nccl_tf.networks.inspection import makes_mask, vocabularies

MODES = ("auto", "max", "min")
"""Whether more is better or less, or whether Keras knows."""

_LESS_IS_BETTER = ("Perplexity",)
"""Classes of metrics, of KerasHub, that do not say it."""

Metric: TypeAlias = str | keras.metrics.Metric | None


class TaskMetric:
    """The value of a Keras metric over the test examples of a task.

    The metric is as `compile` takes it: it gets the targets, what the model makes of the inputs and
    the weights of the examples, 0 for what the loss ignores. Metrics of Keras that compare
    probabilities get these; others get logits, for a classifier.

    Args:
        model: A learner.
        metric: A Keras metric, its name or a function of targets and outputs.
        mode: "max" where more is better, "min" where less is, "auto" to ask the metric.

    Attributes:
        metric: As `ExampleLoss.metric` makes it.
        name: Of it.
        higher_is_better: Whether more is better.

    Raises:
        UserError: Keras has no such metric, or it does not know its direction.
    """

    def __init__(self, model: Learner, metric: Any, mode: str = "auto"):
        self._model = model
        self._update = graph(self._updated, reduce_retracing=True)
        self.metric = model.example_loss.metric(metric, model.num_classes)
        self.name = str(self.metric.name)
        self.higher_is_better = _higher_is_better(self.metric, mode)

    def check(self, task: Any) -> None:
        """Try the metric out, before anything is trained.

        Args:
            task: Of a stream.

        Raises:
            UserError: It does not fit a task's targets and the model's outputs.
        """
        loss, shape = self._model.example_loss, self._model.network.output_shape
        outputs = (*shape[1:-1], self._model.num_classes)
        _, labels, _ = next(iter(self._batches(task)))
        labels = loss.targets(labels)
        targets = tf.TensorSpec([None, *labels.shape[1:]], labels.dtype)
        check_metric(self.metric, targets, outputs, loss)

    def __call__(self, task: Any) -> float:
        """The value of the metric on a task's test examples.

        Raises:
            UserError: The metric has more than one value, a target is no class of the network, or
                an id has no row in its embedding.
        """
        self.metric.reset_state()
        model, loss = self._model, self._model.example_loss
        sizes, has_mask = vocabularies(model.network), makes_mask(model.network)
        for inputs, targets, weights in self._batches(task):
            check_ids(split_inputs(inputs)[0], sizes)
            if loss.takes_class_numbers or (loss.checks_places and not has_mask):
                check_numbers(targets, weights, loss, model.num_classes)
            self._update(inputs, targets, weights)
        value = tf.convert_to_tensor(self.metric.result())
        if value.shape.rank:
            raise UserError(
                f"the metric {self.name} has values of shape {tuple(value.shape)}: expected one "
                "number a task; average it, for example with F1Score(average='macro')"
            )
        return float(value)

    def _batches(self, task: Any) -> tf.data.Dataset:
        return prepared(self._model.network, task.test_batches())[0]

    def _updated(self, inputs: Any, targets: tf.Tensor, weights: tf.Tensor) -> None:
        loss = self._model.example_loss
        batch = self._model.as_batch((inputs, targets, weights))
        outputs = outputs_at_test(self._model, inputs)
        self._model.nan_count.see(outputs, batch.weights)
        targets, weights = loss.measured(batch, outputs)
        outputs = loss.metric_outputs(outputs, targets)
        self.metric.update_state(targets, outputs, sample_weight=weights)


def _higher_is_better(metric: keras.metrics.Metric, mode: str) -> bool:
    checked_name("mode", mode, MODES)
    if mode != "auto":
        return mode == "max"
    towards = "down" if type(metric).__name__ in _LESS_IS_BETTER else direction(metric)
    if towards is None:
        raise UserError(
            f"the metric {metric.name} does not say whether larger or smaller values are better: "
            'give mode="max" or mode="min"'
        )
    return towards == "up"
