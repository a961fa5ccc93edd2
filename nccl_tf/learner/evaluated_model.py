"""`evaluate` and `predict` as Keras has them, for examples whose task the call or the data name."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import split_inputs
from nccl_tf.errors import UserError
from nccl_tf.learner.labels import check_label_dtype
from nccl_tf.learner.optimized_model import OptimizedModel
from nccl_tf.learner.task_data import is_task, test_data


class EvaluatedModel(OptimizedModel):
    """Evaluates and predicts; with a head for each task it insists on knowing the task."""

    test_function: Callable[..., Any] | None
    predict_function: Callable[..., Any] | None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._named_by: str | None = None
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

        Args:
            x: A task of a stream, for its test examples, or as for `keras.Model.evaluate`;
                `{"inputs": inputs, "task": task ids}` names the task of each example (int [n]).
            y: Class numbers [n] of arrays.
            batch_size: Examples in a batch of arrays.
            verbose: As in Keras.
            sample_weight: As in Keras; 0 marks an example as padding.
            steps: As in Keras.
            callbacks: As in Keras.
            return_dict: Whether to return a dictionary by name in place of a list.
            task_id: The task of all examples. A multi-head learner needs it where the data name no
                tasks; a single head takes the latest task by default.
            **kwargs: As in Keras.

        Returns:
            As in Keras; on replicas, over the examples of all of them.

        Raises:
            UserError: Nothing names the task to a multi-head learner, it has no head for it, the
                data name tasks too, or a label is no class of its head.

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
        if y is not None and not validates:
            tasks = x.get("task") if isinstance(x, dict) else task_id
            self.check_labels(y, tasks, sample_weight)
        callbacks = self._hearing_of(_count_batches(x, batch_size, steps), callbacks, verbose)
        evaluate = functools.partial(
            super().evaluate, x, y, batch_size, verbose, sample_weight, steps, callbacks, **kwargs
        )
        named = self._naming_open_task() if validates else self._naming(task_id)
        with named:
            return self.replicas.evaluate(self, evaluate, return_dict)

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
            x: As for `keras.Model.predict`, or `{"inputs": inputs, "task": task ids}`.
            batch_size: Examples in a batch of arrays.
            verbose: As in Keras.
            steps: As in Keras.
            callbacks: As in Keras.
            task_id: As for `evaluate`.

        Raises:
            UserError: As for `evaluate`.
        """
        if task_id is not None:
            self.check_head(task_id)
        callbacks = self._hearing_of(_count_batches(x, batch_size, steps), callbacks, verbose)
        with self._naming(task_id):
            return super().predict(x, batch_size, verbose, steps, callbacks)

    def predict_step(self, data: Any) -> tf.Tensor:
        """Logits of a batch of data, of the named task where the data name none. Graph code."""
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        inputs, tasks = split_inputs(x)
        if tasks is None:
            count = tf.shape(tf.nest.flatten(inputs)[0])[0]
            tasks = tf.fill([count], self.test_task())
        return self({"inputs": inputs, "task": tasks}, training=False)

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
        if self.example_loss.takes_class_numbers and isinstance(spec, tuple) and len(spec) > 1:
            check_label_dtype(getattr(spec[1], "dtype", None))
        return function(iterator)

    def _predict(self, function: Callable[[Any], Any], data: Any) -> Any:
        self._check_named(data[0])
        return function(data)

    def _check_named(self, data: Any) -> None:
        """Check that the task is known of examples, of which `data` is a batch or its spec."""
        x = data[0] if isinstance(data, (tuple, list)) else data
        in_data = isinstance(x, dict) and "task" in x
        if in_data and self._named_by == "call":
            raise UserError(
                "received task_id and data with tasks of their own: leave one of them out"
            )
        if self.heads is not None and not in_data and self._named_by is None:
            raise UserError(
                "received examples without their task for a learner with a head for each task: "
                'pass task_id=..., or x as {"inputs": inputs, "task": task ids}'
            )

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


class BatchesOfData(keras.callbacks.CallbackList):
    """Callbacks of `evaluate` and `predict` that hear of no more batches than there are.

    Keras counts whole calls of the graph, and its progress bar grows with that number.

    Args:
        callbacks: The callbacks.
        count: Batches of the data; None where that is not known.
        **params: As for `keras.callbacks.CallbackList`.
    """

    def __init__(self, callbacks: Any, count: int | None, **params: Any):
        super().__init__(callbacks, steps=count, **params)
        self._last = np.inf if count is None else count - 1

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Tell the number of the last batch of a call."""
        super().on_test_batch_end(min(batch, self._last), logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Tell the number of the last batch of a call."""
        super().on_predict_batch_end(min(batch, self._last), logs)


def _count_batches(x: Any, batch_size: int | None, steps: int | None) -> int | None:
    if steps is not None:
        return steps
    if isinstance(x, tf.data.Dataset):
        count = int(x.cardinality())
        return count if count >= 0 else None
    if isinstance(x, keras.utils.PyDataset):
        return x.num_batches
    first = tf.nest.flatten(x)[0]
    if not isinstance(first, (np.ndarray, tf.Tensor)) or not first.ndim:
        return None
    return -(-len(first) // (batch_size or 32))
