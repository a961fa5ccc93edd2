"""A task model that is fitted task by task, with many steps in one call of the graph."""

from collections.abc import Callable
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import split_inputs
from nccl_tf.errors import UserError
from nccl_tf.learner.evaluated_model import EvaluatedModel
from nccl_tf.learner.fitting.fit_checks import FitChecks
from nccl_tf.learner.fitting.hints import hint_of_tasks
from nccl_tf.learner.fitting.input_checks import check_counts, explained_inputs, refuse_empty
from nccl_tf.learner.fitting.labels import check_element
from nccl_tf.learner.fitting.progress import MeasuredProgress
from nccl_tf.learner.fitting.task_data import fit_arguments, is_task, test_data
from nccl_tf.learner.fitting.train_loop import (
    BatchNumbers,
    TrainFunction,
    as_dataset,
    callback_periods,
    fast_steps,
    listed,
    steps_per_call,
    weigh_classes,
)


class FittedModel(EvaluatedModel):
    """`fit` as Keras has it, for one device and for replicas."""

    joint: ClassVar[bool] = False
    """Whether the method has a meaning only where all tasks are learned at once."""
    keeps_by_weight: ClassVar[bool] = False
    """Whether it keeps something for each weight that was trainable when it was made."""
    train_function: Callable[..., Any] | None
    _expected: tuple[int, np.ndarray | None] | None = None
    # During a `fit`: the task, and what `class_table` returns.

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.hints_given: list[str] = []
        self._made_with = [id(v) for v in self.trainable_variables]

    @property
    def reads_from_disk(self) -> bool:
        """Whether a memory has its inputs in a file, which is read between calls of the graph."""
        return False

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        steps_per_epoch: int | None = None,
        *,
        task_id: int | None = None,
        end_task: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Learn one task: `keras.Model.fit` between `begin_task` and `end_task`.

        Args:
            x: As for `keras.Model.fit`, like all arguments that are not named here; or a task of a
                stream, whose examples come in another order in every epoch.
            y: Labels.
            batch_size: Examples in a batch of arrays (by default 32) or of a task (10).
            epochs: Passes over the data.
            verbose: As in Keras.
            callbacks: As in Keras.
            validation_split: As in Keras.
            validation_data: As in Keras; or a task of a stream, for its test examples.
            shuffle: Whether arrays are shuffled; a dataset comes in its own order.
            class_weight: Factors of the examples' weights, by class number.
            sample_weight: Weights [n], 0 or more; 0 marks an example as padding. A step takes the
                mean by weights, where Keras divides by the number of examples: only ratios count. A
                memory does not keep them: an example is replayed with weight 1.
            steps_per_epoch: As in Keras.
            task_id: The task's number; by default the open task, else the one after the last.
            end_task: False leaves the task open, for another `fit` to go on with it.
            **kwargs: Further arguments of `keras.Model.fit`.

        Returns:
            The `keras.callbacks.History` of this fit. Its `loss` is the mean over the steps,
            without the network's regularizers, which are in the gradients alone.

        Raises:
            UserError: The data hold no examples, or inputs that the network or the memory cannot
                take, a label is no whole number or no class of its task, the method is not defined
                at the learning rate, or as for `begin_task`.
            LearningFailedError: Ten steps in a row had no finite loss and gradient, or every step
                of a fit that begins a task; the task stays open, with the state after the last
                finite step. Or a weight is not finite after the fit.
        """
        self.check_holds_plain_weights("trained")
        if is_task(x):
            beside = {
                "y": y, "sample_weight": sample_weight, "steps_per_epoch": steps_per_epoch,
                "validation_split": validation_split or None,
            }  # fmt: skip
            task = fit_arguments(x, beside, batch_size, epochs, self.seed, callbacks)
            x, callbacks, shuffle = task.x, task.callbacks, False
            task_id = task.task_id if task_id is None else task_id
        self.check_trainable()
        if is_task(validation_data):
            validation_data = test_data(validation_data, kwargs.pop("validation_batch_size", None))
        if task_id is None:
            task_id = self.next_task()
            hint_of_tasks(self, x, task_id)
        table = self.class_table()
        if y is not None:
            check_counts(split_inputs(x)[0], y)
            tasks = x.get("task", task_id) if isinstance(x, dict) else task_id
            self.check_labels(y, tasks, sample_weight, table)
        with explained_inputs(self.network, x):
            begins = not bool(self.task_is_open.numpy())
            self.begin_task(task_id)
            dataset = None
            if not validation_split:
                dataset = as_dataset(x, y, sample_weight, batch_size, shuffle)
            arguments: dict[str, Any] = {
                "epochs": epochs, "verbose": verbose, "validation_data": validation_data, **kwargs,
            }  # fmt: skip
            if dataset is None:
                arguments |= {
                    "y": y, "batch_size": batch_size, "validation_split": validation_split,
                    # Keras shuffles arrays and sequences, and warns where it cannot.
                    "shuffle": shuffle and (y is not None or isinstance(x, keras.utils.PyDataset)),
                    "class_weight": class_weight, "sample_weight": sample_weight,
                }  # fmt: skip
            else:
                x = dataset if class_weight is None else weigh_classes(dataset, class_weight)
                arguments["shuffle"] = False
            callbacks = [*listed(callbacks), FitChecks(begins)]
            steps = self._steps_per_call(steps_per_epoch, callbacks)
            batches = steps_per_epoch
            stacked = None if dataset is None else self.replicas.stack(x, steps)
            if stacked is not None:
                batches = steps_per_epoch or _length(x)
                x, steps_per_epoch = stacked, steps_per_epoch and steps_per_epoch // steps
            self._expected = task_id, table
            try:
                history = self._fit(
                    x, callbacks, batches, steps_per_epoch=steps_per_epoch, **arguments
                )
            finally:
                self._expected = None
                # A row of steps that were not finite ends with the fit.
                self.skipped_in_a_row.assign(0)
        if history.epoch and not history.history:
            refuse_empty(x)
        if end_task and history.epoch:
            self.end_task()
        return history

    def check_trainable(self) -> None:
        """Check that the same variables are trained as when the learner was compiled.

        Raises:
            UserError: Layers were frozen, or freed, since; or since the learner was made, where it
                keeps something for each weight.
        """
        trained, name = [id(v) for v in self.trainable_variables], type(self).__name__
        if self.keeps_by_weight and self._made_with != trained:
            raise UserError(
                f"received a network in which other layers are trainable than when the {name} was "
                "made, which keeps something for each trainable weight: let the same layers be "
                f"trainable, or make the {name} again"
            )
        if self.compiled and self._trained != trained:
            raise UserError(
                "received a network in which other layers are trainable than at compile: call "
                "compile again, with a new optimizer"
            )

    def _fit(self, x: Any, callbacks: Any, batches: int | None, **arguments: Any) -> Any:
        self.make_train_function()
        if not isinstance(self.train_function, TrainFunction):
            return self.replicas.fit(self, x, callbacks=callbacks, **arguments)
        verbose, epochs = arguments["verbose"], arguments["epochs"]
        bar = [MeasuredProgress()] if verbose != 0 else []
        numbered = BatchNumbers(
            self.train_function, [*callbacks, *bar], model=self,
            verbose=1 if verbose == "auto" else verbose, epochs=epochs, steps=batches,
        )  # fmt: skip
        evaluated, self.steps_per_execution = self.steps_per_execution, 1
        try:
            # Keras counts one element of the data as a step, however many batches it holds.
            return self.replicas.fit(self, x, callbacks=numbered, **arguments)
        finally:
            self.steps_per_execution = evaluated

    def _steps_per_call(self, steps_per_epoch: int | None, callbacks: Any) -> int:
        most = self.most_steps_per_call()
        steps = steps_per_call(most, [steps_per_epoch, *callback_periods(callbacks)])
        if steps != self.steps_per_execution:
            self.steps_per_execution = steps
            self.train_function = None
        return steps

    def next_task(self) -> int:
        """The task that `fit` learns by default: the open one, else the one after the last."""
        return int(self.task.numpy()) + (not bool(self.task_is_open.numpy()))

    def most_steps_per_call(self) -> int:
        """The most steps that one call of the train function takes; 1 before `compile`."""
        if not self.compiled or self.run_eagerly:
            return 1
        asked = self._compile_arguments["steps_per_execution"]
        return self.replicas.most_steps(asked, fast_steps(self.network))

    def class_table(self) -> np.ndarray | None:
        """bool [tasks, classes]: the labels that each task may have; None for all classes."""
        return self.head_table()

    def check_element(self, element: Any) -> None:
        """Check the labels, tasks and weights of a batch or a stack of batches, on the host.

        Raises:
            UserError: A label is no whole number or no class of its task, a task id is out of
                range, or a weight below 0.
        """
        task_id, table = self._expected or (int(self.task.numpy()), self.class_table())
        loss = self.example_loss
        one_hot = not loss.takes_class_numbers
        check_element(element, task_id, self.num_classes, table, one_hot, loss.checks_labels)

    def trace_again(self) -> None:
        """Forget the graphs of the train function, because a step has changed."""
        self.replicas.forget_graphs(self)

    def make_train_function(self, force: bool = False) -> None:
        """As in Keras, with a function that also takes stacks where there is one device."""
        self.check_holds_plain_weights("trained")
        if self.train_function is not None and not force:
            return
        self.train_function = self.replicas.train_function(self)
        if self.train_function is None:
            super().make_train_function(force)


def _length(dataset: tf.data.Dataset) -> int | None:
    """The number of batches, None where it is not known."""
    count = int(dataset.cardinality())
    return count if count >= 0 else None
