"""A task model that counts how many examples it classifies correctly."""

from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.batch import class_numbers, split_inputs, take_rows
from nccl_tf.errors import UserError
from nccl_tf.learner.fitting.input_checks import check_counts, explained_inputs
from nccl_tf.learner.fitting.task_data import is_task, test_inputs
from nccl_tf.learner.fitting.task_ids import check_ids_form, check_named_once
from nccl_tf.learner.noted import NanExamples
from nccl_tf.learner.options.average import AveragedModel
from nccl_tf.networks.inspection import has_convolutions

EVALUATION_BATCH = 1000
"""Examples that `accuracy` takes at once."""


class CountedModel(AveragedModel):
    """Accuracy without metrics, on all examples in one call of the graph."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._count: Any = None
        self.nan_examples = NanExamples()

    def accuracy(self, x: Any, y: Any = None, task_id: int | None = None) -> float:
        """Share of examples that are classified correctly, as a fraction.

        An example with NaN in its inputs or outputs is not, which a log line tells once.

        Args:
            x: A task of a stream, for its test examples; or inputs [n, ...], as in training, or
                `{"inputs": inputs, "task": task ids}`.
            y: Labels of inputs: int [n], or one-hot rows [n, classes] as the loss takes them.
            task_id: The task of all examples, for the mask of a multi-head learner; a single head
                takes the latest task by default.

        Raises:
            UserError: There are no examples, or not as many labels as inputs, the network cannot
                take the inputs, nothing names the task to a multi-head learner, it has no head for
                it, a label is no class of it, or the compiled loss has no classes.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits", max_tasks=2)
        network = nccl_tf.networks.mlp(
            stream.example_shape, stream.num_classes, pixels=stream.pixels
        )
        learner = nccl_tf.Finetune(network, heads=stream.heads)
        learner.compile(keras.optimizers.SGD(0.1))
        learner.fit(stream[0], verbose=0)
        learner.accuracy(stream[0])
        learner.accuracy(*stream[0].test, task_id=0)  # the same
        ```
        """
        if is_task(x):
            if y is not None:
                raise UserError(
                    f"received task {x.task_id} of a stream and labels: a task has labels itself; "
                    "leave y out"
                )
            task = x
            x, task_id = test_inputs(task, task_id)
            y = task.test.labels
        elif y is None:
            raise UserError(
                "received inputs without labels: expected accuracy(inputs, labels), or a task of a "
                "stream"
            )
        correct = int(self.correct(x, y, task_id))
        self.nan_examples.tell(self)
        return correct / len(y)

    def correct(self, x: Any, y: Any, task_id: int | None = None) -> tf.Tensor:
        """As `accuracy`, but how many are classified correctly: int32 scalar on its device."""
        if not self.example_loss.has_classes:
            raise UserError(
                f"received examples to count with {self.example_loss.name}, which has no classes "
                "to be right about: take evaluate, with a metric of the targets in compile"
            )
        check_ids_form(x)
        inputs, tasks = split_inputs(x)
        tasks = self._checked_tasks(tasks, task_id)
        self.check_labels(y, tasks)
        with explained_inputs(self.network, inputs):
            check_counts(inputs, y)
            return self._correct(inputs, y, tasks)

    def _checked_tasks(self, tasks: Any, task_id: int | None) -> Any:
        """The task of all examples, or those of each, for which there are heads."""
        by = None if task_id is None else "call"
        check_named_once(self.heads is not None, tasks is not None, by)
        if tasks is not None:
            tasks = np.asarray(tasks)
            for task in np.unique(tasks):
                self.check_head(task)
            return tasks
        if task_id is None:
            task_id = max(int(self.task.numpy()), 0)
        self.check_head(task_id)
        return task_id

    def _correct(self, inputs: Any, labels: Any, tasks: Any) -> tf.Tensor:
        labels = class_numbers(self.example_loss.targets(tf.convert_to_tensor(labels)))
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        # Of this object, because what the class keeps would outlive a head that grows.
        self._count = self._count or tf.function(
            self._count_correct, reduce_retracing=True, autograph=False
        )
        tasks = tf.broadcast_to(tf.cast(tasks, tf.int32), tf.shape(labels))
        with self.evaluation_weights():
            return self._count(inputs, labels, tasks)

    def _count_correct(self, inputs: Any, labels: tf.Tensor, tasks: tf.Tensor) -> tf.Tensor:
        def add(start: tf.Tensor, correct: tf.Tensor, nan: tf.Tensor) -> tuple[tf.Tensor, ...]:
            part = slice(start, start + EVALUATION_BATCH)
            batch = {"inputs": take_rows(inputs, part), "task": tasks[part]}
            logits = self.outputs_at_test(batch)
            is_nan = tf.reduce_any(tf.math.is_nan(logits), axis=1)
            right = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels[part])
            more = [tf.math.count_nonzero(x, dtype=tf.int32) for x in (right & ~is_nan, is_nan)]
            return start + EVALUATION_BATCH, correct + more[0], nan + more[1]

        count = tf.shape(labels)[0]
        # Two batches of dense layers keep two cores busy; convolutions fill them, and the memory.
        most = 1 if has_convolutions(self.network, frozen=True) else 2
        _, correct, nan = tf.while_loop(
            lambda i, *_: i < count, add, (0, 0, 0), parallel_iterations=most
        )
        self.nan_examples.add(nan)
        return correct
