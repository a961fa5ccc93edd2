"""`evaluate` and `predict` as Keras has them, for examples whose task the call or the data name."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import split_inputs
from nccl_tf.learner.counted_model import CountedModel
from nccl_tf.learner.fitting.input_checks import explained_inputs, refuse_empty
from nccl_tf.learner.fitting.labels import check_label_spec
from nccl_tf.learner.fitting.progress import BatchesOfData, count_batches
from nccl_tf.learner.fitting.task_data import is_task, test_data, test_inputs
from nccl_tf.learner.fitting.task_ids import check_ids_known, check_named_once
from nccl_tf.learner.noted import NamedTask, UnknownLabel
from nccl_tf.learner.task_model import weighted_mean


class EvaluatedModel(CountedModel):
    """Evaluates and predicts; with a head for each task it insists on knowing the task."""

    test_function: Callable[..., Any] | None
    predict_function: Callable[..., Any] | None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._named_by: str | None = None
        self._named_task = NamedTask()
        self._unknown_label = UnknownLabel()
        self._steps_of_test_function = 0

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        *,
        task_id: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """The loss and the compiled metrics over examples of one task, or of the tasks in the data.

        To metrics a class that a mask hides is no hit, and an example with NaN in its inputs or
        outputs is wrong, which a log line tells once; its loss is NaN.

        Args:
            x: A task of a stream, for its test examples, or as for `keras.Model.evaluate`;
                `{"inputs": inputs, "task": task ids}` names the task of each example (int [n]).
            y: Class numbers [n] of arrays.
            batch_size: Examples in a batch of arrays.
            verbose, steps, callbacks: As in Keras.
            sample_weight: As in `fit`: losses are means by weights; 0 marks an example as padding.
            return_dict: Whether to return a dictionary by name in place of a list.
            task_id: The task of all examples. A multi-head learner needs it where the data name no
                tasks; a single head takes the latest task by default.
            **kwargs: As in Keras.

        Returns:
            As in Keras; on replicas, over the examples of all of them.

        Raises:
            UserError: The data hold no examples, or inputs that the network cannot take, nothing
                names the task to a multi-head learner, it has no head for it, the data name tasks
                too, or a label is no class of its head.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits", max_tasks=2)
        network = nccl_tf.networks.mlp(
            stream.example_shape, stream.num_classes, pixels=stream.pixels
        )
        learner = nccl_tf.Finetune(network, heads=stream.heads)
        learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
        for task in stream:
            learner.fit(task.train_batches(batch_size=10), verbose=0)
        loss, accuracy = learner.evaluate(*stream[0].test, task_id=0, verbose=0)
        ```
        """
        if is_task(x):
            x, batch_size = test_data(x, batch_size), None
        validates = bool(kwargs.get("_use_cached_eval_dataset"))
        if task_id is not None:
            self.check_head(task_id)
        if y is not None:
            open_task = int(self.task.numpy()) if validates else None
            tasks = x.get("task") if isinstance(x, dict) else task_id
            tasks = open_task if tasks is None else tasks
            self.check_labels(y, tasks, sample_weight)
        callbacks = self._hearing_of(count_batches(x, batch_size, steps), callbacks, verbose)
        evaluate = functools.partial(
            super().evaluate, x, y, batch_size, verbose, sample_weight, steps, callbacks, **kwargs
        )
        named = self._naming_open_task() if validates else self._naming(task_id)
        with explained_inputs(self.network, x), named, self.evaluation_weights():
            logs = self.replicas.evaluate(self, evaluate, return_dict)
        if isinstance(logs, (list, dict)) and not logs:
            refuse_empty(x)
        self._unknown_label.refuse(self)
        self.nan_examples.tell(self)
        return logs

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
        *,
        task_id: int | None = None,
    ) -> Any:
        """Logits [n, classes] as `evaluate` and `accuracy` judge them, -1e9 where masked.

        Args:
            x: A task of a stream, for its test examples, as for `keras.Model.predict`, or
                `{"inputs": inputs, "task": task ids}`.
            batch_size: Examples in a batch of arrays.
            verbose, steps, callbacks: As in Keras.
            task_id: As for `evaluate`.

        Raises:
            UserError: As for `evaluate`.
        """
        if is_task(x):
            x, task_id = test_inputs(x, task_id)
        if task_id is not None:
            self.check_head(task_id)
        callbacks = self._hearing_of(count_batches(x, batch_size, steps), callbacks, verbose)
        named = self._naming(task_id)
        with explained_inputs(self.network, x), named, self.evaluation_weights():
            return super().predict(x, batch_size, verbose, steps, callbacks)

    def predict_step(self, data: Any) -> tf.Tensor:
        """Logits of a batch of data, of the named task where the data name none. Graph code."""
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        inputs, tasks = split_inputs(x)
        if tasks is None:
            count = tf.shape(tf.nest.flatten(inputs)[0])[0]
            tasks = tf.fill([count], self.test_task())
        return self({"inputs": inputs, "task": tasks}, training=False)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Evaluate a batch: mean loss over its real examples, and the compiled metrics."""
        batch = self._unknown_label.replaced(self, data, self.as_batch(data, self.test_task()))
        logits = self.outputs_at_test({"inputs": batch.inputs, "task": batch.tasks})
        self.nan_examples.note(self, logits, batch.weights)
        loss = weighted_mean(self.example_losses(logits, batch), batch.weights)
        self._loss_tracker.update_state(loss, sample_weight=tf.reduce_sum(batch.weights))
        judged = self.example_loss.judged(logits, batch.labels)
        return self.compute_metrics(None, batch.labels, judged, batch.weights)

    def get_metrics_result(self) -> dict[str, tf.Tensor]:
        """As in Keras; the loss over no step or example is NaN, not 0."""
        results = super().get_metrics_result()
        if "loss" in results:
            counted = self._loss_tracker.count.value > 0
            results["loss"] = tf.where(counted, results["loss"], float("nan"))
        return results

    def test_task(self) -> tf.Tensor:
        """int32 scalar: the task of examples that come without one, in evaluation. Graph code."""
        named = self._named_task.variable.value
        return tf.where(named < 0, self.task.value, named)

    def make_test_function(self, force: bool = False) -> None:
        """As in Keras, with a function that knows the task, for the steps in a call of now."""
        fits = self._steps_of_test_function == self.steps_per_execution
        if self.test_function is not None and fits and not force:
            return
        self._steps_of_test_function = self.steps_per_execution
        super().make_test_function(force=True)
        function: Any = self.test_function
        self.test_function = functools.partial(self._test, function)

    def make_predict_function(self, force: bool = False) -> None:
        """As in Keras, with a function that knows the task."""
        if self.predict_function is not None and not force:
            return
        super().make_predict_function(force=True)
        function: Any = self.predict_function
        self.predict_function = functools.partial(self._predict, function)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Nothing: `compile` builds all; Keras's fails where replicas' slices differ in size."""

    def _hearing_of(self, count: int | None, callbacks: Any, verbose: Any) -> Any:
        if isinstance(callbacks, keras.callbacks.CallbackList):
            return callbacks
        return BatchesOfData(
            callbacks, count, add_progbar=verbose != 0, verbose=verbose, epochs=1, model=self
        )

    def _test(self, function: Callable[[Any], Any], iterator: Any) -> Any:
        spec = getattr(iterator, "element_spec", None)
        if spec is None:
            # `test_on_batch` passes a generator of one batch.
            spec = next(iterator)
            iterator = iter([spec])
        self._check_named(spec)
        if self.example_loss.checks_labels and isinstance(spec, tuple) and len(spec) > 1:
            check_label_spec(spec[1], self.num_classes, self.example_loss.takes_class_numbers)
        with self.evaluation_weights():
            return function(iterator)

    def _predict(self, function: Callable[[Any], Any], data: Any) -> Any:
        self._check_named(data[0])
        check_ids_known(self, data)
        with self.evaluation_weights():
            return function(data)

    def _check_named(self, data: Any) -> None:
        """Check that the task is known of examples, of which `data` is a batch or its spec."""
        x = data[0] if isinstance(data, (tuple, list)) else data
        in_data = isinstance(x, dict) and "task" in x
        check_named_once(self.heads is not None, in_data, self._named_by)

    @contextmanager
    def _naming(self, task_id: int | None) -> Iterator[None]:
        """Name the task of examples that come without one, while the body runs."""
        if task_id is None:
            yield
            return
        self._named_by = "call"
        self._named_task.variable.assign(task_id)
        try:
            yield
        finally:
            self._named_by = None
            self._named_task.variable.assign(-1)

    @contextmanager
    def _naming_open_task(self) -> Iterator[None]:
        """Let what `fit` validates on without a task belong to the task that it learns."""
        before, self._named_by = self._named_by, "fit"
        try:
            yield
        finally:
            self._named_by = before
