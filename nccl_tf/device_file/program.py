"""The functions of a file as graph code on a learner, before they are emitted anew."""

import functools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.device_file import walker
from nccl_tf.errors import UserError, one_line
from nccl_tf.learner import checks
from nccl_tf.learner.core import Core
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.learner.options.option import Option

_MOST_REASON = 200
TASK = "task"
"""Name of the task ids that a learner with heads predicts by."""


class Program:
    """The traced functions of a learner that a file has signatures for.

    Args:
        learner: A compiled learner whose memories are allocated.
        batch_size: Examples in a step.
        predict_batch_size: Examples in a prediction.

    Attributes:
        inputs: Specs of the inputs of a step by name, without labels and weights.
        labels: Spec of the labels of a step.

    Raises:
        UserError: The inputs have no fixed shape, or are text.
    """

    def __init__(self, learner: Learner, batch_size: int, predict_batch_size: int):
        self.learner = learner
        self._forms = _forms_of(learner)
        self.inputs = _named(self._forms, batch_size)
        self._to_predict = _named(self._forms, predict_batch_size)
        self.labels = _labels_of(learner, batch_size)
        self.weights = tf.TensorSpec([batch_size], tf.float32, name="weights")
        self.tasks = tf.TensorSpec([predict_batch_size], tf.int32, name=TASK)
        if not learner.optimizer.built:
            learner.optimizer.build(learner.trainable_variables)

    @cached_property
    def train(self) -> Any:
        """Inputs, labels and weights to the logs of one step, and whether it was learned."""
        progress, learner = self.learner.progress, self.learner

        def train(*columns: tf.Tensor) -> dict[str, tf.Tensor]:
            *inputs, labels, weights = columns
            self._begin()
            # Nobody raises on a device: a row of skipped steps ends where Keras's `fit` would end.
            row = progress.skipped_in_a_row
            row.assign(
                tf.where(row.value < checks.SKIPS_IN_A_ROW, row.value, tf.zeros_like(row.value))
            )
            # The logs of a step are means since the last reset.
            learner.reset_metrics()
            before = tf.identity(progress.skipped.value)
            logs = learner.train_step((self._together(inputs), labels, weights))
            learned = tf.equal(progress.skipped.value, before)
            logs = {name: tf.cast(value, tf.float32) for name, value in logs.items()}
            return {**logs, "learned": tf.cast(learned, tf.int32)}

        return _traced(train, [*self.inputs, self.labels, self.weights], "train_step")

    @cached_property
    def infer(self) -> Any:
        """Inputs, and tasks with heads, to logits, and labels where there are classes."""
        learner, loss = self.learner, self.learner.example_loss
        heads = [self.tasks] if learner.heads is not None else []

        def infer(*columns: tf.Tensor) -> dict[str, tf.Tensor]:
            inputs = columns[: len(self.inputs)]
            x = self._together(inputs)
            if heads:
                x = {"inputs": x, "task": columns[-1]}
            outputs = tf.cast(self._predicted(x), tf.float32)
            if not loss.has_classes:
                return {"outputs": outputs}
            return {"logits": outputs, "label": tf.cast(loss.predicted(outputs), tf.int32)}

        return _traced(infer, [*self._to_predict, *heads], "predict_step")

    @cached_property
    def begin_task(self) -> Any:
        """Opens a task where none is open; returns its number."""
        progress = self.learner.progress

        def begin_task() -> dict[str, tf.Tensor]:
            self._begin()
            progress.reset_skips_in_a_row()
            return {TASK: tf.cast(progress.task.value, tf.int32)}

        return _traced(begin_task, [], "on_task_begin")

    @cached_property
    def end_task(self) -> Any:
        """Ends the task that is open; returns how many have ended."""
        progress, learner = self.learner.progress, self.learner

        def end() -> tf.Tensor:
            task = tf.identity(progress.task.value)
            learner.close_task(task)
            progress.task_is_open.assign(False)
            progress.tasks_ended.value.assign_add(1)
            for option in learner.options:
                _called(option, option.on_task_end, task)
            return tf.constant(0)

        def end_task() -> dict[str, tf.Tensor]:
            tf.cond(progress.task_is_open.value, end, lambda: tf.constant(0))
            return {"tasks_ended": tf.cast(progress.tasks_ended.value, tf.int32)}

        return _traced(end_task, [], "on_task_end")

    @cached_property
    def functions(self) -> dict[str, Any]:
        """All of them by the names of their signatures."""
        return {name: getattr(self, name) for name in ("train", "infer", "begin_task", "end_task")}

    @cached_property
    def captured(self) -> list[tf.Variable]:
        """Every variable that one of them reads or writes."""
        found = [v for each in self.functions.values() for v in each.graph.variables]
        return list({id(variable): variable for variable in found}.values())

    @cached_property
    def _written(self) -> set[int]:
        return walker.written(list(self.functions.values()))

    @cached_property
    def state(self) -> list[keras.Variable]:
        """The variables that a step or a task writes, in order: a learner goes on from them."""
        return [
            variable
            for variable in self.learner.state_variables.values()
            if id(variable.value) in self._written
        ]

    @cached_property
    def constants(self) -> dict[int, np.ndarray]:
        """The values of variables that nothing writes, such as those of a frozen layer, by id."""
        return {id(v): v.numpy() for v in self.captured if id(v) not in self._written}

    @cached_property
    def frozen(self) -> list[keras.Variable]:
        """The network's variables that are no state."""
        known = set(map(id, self.state))
        return [v for v in self.learner.network.variables if id(v) not in known]

    @cached_property
    def trained(self) -> list[keras.Variable]:
        """The network's variables that devices may average: those in float32 that are state."""
        of_network = set(map(id, self.learner.network.variables))
        return [v for v in self.state if id(v) in of_network and v.dtype == "float32"]

    def _together(self, columns: Sequence[tf.Tensor]) -> Any:
        return tf.nest.pack_sequence_as(self._forms, list(columns))

    def _begin(self) -> None:
        """Open a task where none is open, as `fit` does."""
        progress, learner = self.learner.progress, self.learner
        is_open = tf.identity(progress.task_is_open.value)
        task = progress.task.value + tf.cast(tf.logical_not(is_open), tf.int64)
        progress.task.assign(task)
        progress.task_is_open.assign(True)
        hooks: list[Callable[..., Any]] = [
            functools.partial(_called, option, option.on_task_begin)
            for option in learner.options
            if _extends_begin(option)
        ]
        if type(learner).on_task_begin is not Core.on_task_begin:
            hooks.append(learner.on_task_begin)

        def call() -> tf.Tensor:
            for hook in hooks:
                hook(task)
            return tf.constant(0)

        if hooks:
            tf.cond(is_open, lambda: tf.constant(0), call)

    def _predicted(self, x: Any) -> tf.Tensor:
        """Outputs as `predict` has them, with averaged weights where there are some."""
        average = self.learner.option(AverageWeights)
        if average is None:
            return self.learner.predict_step((x,))
        # Before the first step the average is the weights.
        exists = average.steps.value > 0
        pairs = zip(average.copy.originals, average.copy.variables, strict=True)
        values = [(v, tf.where(exists, copy.value, v.value)) for v, copy in pairs]
        with keras.StatelessScope(values):
            return self.learner.predict_step((x,))


def _extends_begin(option: Option) -> bool:
    return type(option).on_task_begin is not Option.on_task_begin


_NO_GRAPH_CODE = (
    AttributeError, NotImplementedError, TypeError, tf.errors.OperatorNotAllowedInGraphError,
)  # fmt: skip


def _called(option: Option, hook: Callable[[Any], None], task: tf.Tensor) -> None:
    """Call a hook of an option.

    Raises:
        UserError: It is no graph code.
    """
    try:
        hook(task)
    except _NO_GRAPH_CODE as error:
        names = " and ".join(option.get_config()) or type(option).__name__
        raise UserError(
            f"received a learner with {names}, which works in Python when a task begins or ends: "
            f"leave {names} out of a file for a device"
        ) from error


def _traced(function: Callable[..., Any], specs: Sequence[tf.TensorSpec], hook: str) -> Any:
    """A concrete function on fixed shapes.

    Raises:
        UserError: It is no graph code.
    """
    made = tf.function(function, input_signature=specs, autograph=False)
    try:
        return made.get_concrete_function()
    except _NO_GRAPH_CODE as error:
        raise UserError(
            f"received a learner whose {hook} is no graph code ({type(error).__name__}: "
            f"{one_line(str(error))[:_MOST_REASON]}): a device runs operations of TensorFlow "
            "alone, so write it with them, or say in `cannot` why the class is not exported"
        ) from error


def _forms_of(learner: Learner) -> Any:
    """Specs of one example's inputs, in their structure.

    Raises:
        UserError: They are text, or have no fixed shape.
    """
    memory = learner.memory
    if memory is not None:
        forms = tf.nest.map_structure(
            lambda column: tf.TensorSpec(column.shape[1:], column.dtype), memory.inputs
        )
    else:
        network = learner.network
        received = network.inputs if isinstance(network, keras.Sequential) else network.input
        if isinstance(received, (list, tuple)):
            received = received[0] if len(received) == 1 else tuple(received)
        forms = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), received)
    for form in tf.nest.flatten(forms):
        if form.dtype == tf.string:
            raise UserError(
                "received a learner of text, which LiteRT does not take: turn texts into token "
                "numbers before the network, which then takes integers"
            )
        if not form.shape.is_fully_defined():
            raise UserError(
                f"received a learner whose inputs have the shape {tuple(form.shape)}, with an "
                "unknown side: a device takes inputs of one shape, so build the network for it"
            )
    return forms


def _named(forms: Any, count: int) -> list[tf.TensorSpec]:
    """Specs of batches, "x" for one input, and with its key or its number for several."""
    flat = tf.nest.flatten(forms)
    keys = sorted(forms) if isinstance(forms, dict) else range(len(flat))
    names = ["x"] if len(flat) == 1 else [f"x_{key}" for key in keys]
    return [
        tf.TensorSpec([count, *form.shape], form.dtype, name=name)
        for form, name in zip(flat, names, strict=True)
    ]


def _labels_of(learner: Learner, count: int) -> tf.TensorSpec:
    memory, loss = learner.memory, learner.example_loss
    if memory is not None:
        sides, dtype = memory.labels.shape[1:], tf.as_dtype(memory.labels.dtype)
    elif loss.takes_class_numbers:
        sides, dtype = (), tf.int64
    else:
        sides, dtype = learner.network.output_shape[1:], tf.float32
    # The buffers of LiteRT's newer interface take no int64.
    dtype = tf.int32 if dtype == tf.int64 else dtype
    return tf.TensorSpec([count, *sides], dtype, name="y")
