"""A Keras model of a stream of tasks: one network, behind one head or a head for each task."""

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self, Unpack

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.choices import MASKS
from nccl_tf.arguments.constructors import NoArguments, refuse_unknown, show_arguments
from nccl_tf.batch import Batch, as_batch, as_floatx, split_inputs
from nccl_tf.errors import UserError, check_name, check_seed
from nccl_tf.learner.fitting.labels import (
    check_is_one_number,
    check_labels,
    check_weights,
    rows_to_numbers,
)
from nccl_tf.learner.fitting.task_ids import check_ids_range, check_task_id, raise_no_head
from nccl_tf.learner.heads import (
    HeadMasks,
    at_least_float32,
    select_logits,
)
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.stream_mask import check_stream_mask
from nccl_tf.learner.saved_model import SavedModel
from nccl_tf.learner.step import Logits
from nccl_tf.networks.inspection import check_holds_no_state, check_network
from nccl_tf.streams.arrays import check_unmasked


class TaskModel(SavedModel):
    """Knows which task is open and which classes it has seen, masks logits, evaluates and is saved.

    Args:
        network: Any Keras model from inputs to one logit per class.
        heads: None for a single head; for multi-head the classes of each task: the logits of other
            tasks are masked out in training and at test, each example by its own task.
        mask: "own", or "union" of the tasks that occur in a batch (the TF1 code base's form).
        seed: Seed of the model's own random draws.
        known_classes: Classes that the network knows already, where it comes trained: a single
            head predicts them from the start, as if they had been seen in the stream.
        stream_mask: Of a single head, the classes that the softmax of the stream's loss runs over:
            "all", "present" (those of the stream batch, of all replicas together: Caccia et al.,
            ICLR 2022) or "seen" (those of the stream so far). Memory examples have all.
        name: The model's name; None for one that Keras makes.

    Raises:
        UserError: An argument, `mask` or `stream_mask` is unknown, the seed is no integer >= 0,
            `known_classes` or a `stream_mask` comes with `heads`, either names a class that the
            network has no logit for, `stream_mask` has no meaning for the method, or a layer keeps
            a state between batches and the method does not have `one_pass`.
    """

    refuses: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Why the method has no meaning for an option; see `Method.refuses` of the registry."""
    one_pass: ClassVar[bool] = False
    """Whether this class passes each batch of the stream through the network once and nothing else,
    so that layers may keep a state between batches; a subclass does not inherit it."""

    def __init__(
        self,
        network: keras.Model,
        *,
        heads: Sequence[Sequence[int]] | None = None,
        mask: str = "own",
        seed: int = 0,
        known_classes: Sequence[int] | None = None,
        stream_mask: str = "all",
        name: str | None = None,
        **unknown: Unpack[NoArguments],
    ):
        refuse_unknown(type(self), unknown)
        # The network's layers cast what they need: a cast by the learner's own policy, the one that
        # was global when it was made, would round inputs in evaluation and not in training.
        super().__init__(name=name, autocast=False)
        check_network(network)
        if not vars(type(self)).get("one_pass"):
            check_holds_no_state(network, type(self).__name__)
        self.network = network
        self.seed = check_seed(seed)
        self.mask = check_name("mask", mask, MASKS)
        self.num_classes = int(network.output_shape[-1])
        self.example_loss = ExampleLoss()
        self.heads = None if heads is None else HeadMasks(heads, self.num_classes, mask)
        self.stream_mask = stream_mask
        check_stream_mask(self)
        self.task = self._state("task", (), "int32", -1)
        self.task_is_open = self._state("task_is_open", (), "bool", 0)
        self.tasks_ended = self._state("tasks_ended", (), "int32", 0)
        self.seen_classes = self._state("seen_classes", (self.num_classes,), "bool", 0)
        self.known_classes: list[int] | None = None
        if known_classes is not None:
            self._know(known_classes)
        self.built = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        show_arguments(cls, TaskModel)

    def on_task_begin(self, task_id: int) -> None:
        """Called once when a task begins; for methods to override."""

    def on_task_end(self, task_id: int) -> None:
        """Called once when a task ends; for methods to override."""

    def begin_task(self, task_id: int) -> None:
        """Open a task. Opening the task that is open changes nothing.

        Args:
            task_id: The task's number, from 0.

        Raises:
            UserError: Another task is open, or as for `check_head`.
        """
        self.check_head(task_id)
        if bool(self.task_is_open.numpy()):
            current = int(self.task.numpy())
            if current == task_id:
                return
            raise UserError(
                f"received the beginning of task {task_id} while task {current} is open: call "
                "end_task() first, or fit without end_task=False"
            )
        self.task.assign(task_id)
        self.task_is_open.assign(True)
        self.on_task_begin(task_id)

    def end_task(self) -> None:
        """Close the open task. Where none is open, nothing changes."""
        if not bool(self.task_is_open.numpy()):
            return
        task_id = int(self.task.numpy())
        self.on_task_end(task_id)
        self.task_is_open.assign(False)
        self.tasks_ended.assign_add(1)

    def check_head(self, task_id: int) -> None:
        """Check that there is a head for a task, where there are heads.

        Raises:
            UserError: There is none, or the task is no whole number from 0.
        """
        check_task_id(task_id)
        if self.heads is not None and task_id >= len(self.heads.classes):
            raise_no_head(task_id, len(self.heads.classes))

    def head_table(self) -> np.ndarray | None:
        """bool [tasks, classes]: the classes of each task's head; None for a single head."""
        return None if self.heads is None else self.heads.table

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        """Logits [n, classes] with masked classes at -1e9.

        Multi-head: the classes of other tasks than the example's, where the input carries tasks.
        Single head: at test, the classes not seen so far in training.
        """
        inputs, tasks = split_inputs(inputs)
        logits = self.outputs(inputs, tasks, training)
        if training and self.heads is None:
            return logits
        return self.masked_for_test(logits, tasks)

    def outputs_at_test(self, inputs: Any) -> tf.Tensor:
        """As `call` at test, and NaN for an example with NaN in its inputs.

        A relu makes 0 of NaN on a processor, so that the outputs alone would not show it.
        """
        outputs = self(inputs, training=False)
        parts = [p for p in tf.nest.flatten(split_inputs(inputs)[0]) if p.dtype.is_floating]
        for part in parts:
            has_nan = tf.reduce_any(tf.math.is_nan(part), axis=list(range(1, part.shape.rank)))
            has_nan = tf.reshape(has_nan, [-1] + [1] * (outputs.shape.rank - 1))
            outputs = tf.where(has_nan, tf.constant(np.nan, outputs.dtype), outputs)
        return outputs

    def masked_for_test(self, logits: tf.Tensor, tasks: tf.Tensor | None) -> tf.Tensor:
        """Logits [n, classes] of examples whose tasks (int32 [n]) may be known, masked for test."""
        value = self.example_loss.masked_value
        if value is None:
            return at_least_float32(logits)
        if self.heads is not None:
            return logits if tasks is None else self.heads.masked(logits, tasks, value=value)
        seen = self.seen_classes.value
        return select_logits(seen | tf.logical_not(tf.reduce_any(seen)), logits, value)

    def outputs(self, inputs: Any, tasks: tf.Tensor | None, training: bool) -> tf.Tensor:
        """What the network makes of inputs [n, ...]: logits [n, classes], before any mask.

        For methods to override whose network depends on the task.

        Args:
            inputs: As the stream delivers them.
            tasks: int32 [n], the task of each example; None where it is not known.
            training: As for Keras models.
        """
        del tasks
        return self.network(inputs, training=training)

    def forward(self, batch: Batch, training: bool) -> Logits:
        """Logits of a batch, raw and as the training loss sees them."""
        raw = self.outputs(batch.inputs, batch.tasks, training)
        return Logits(raw, self.masked(raw, batch))

    def logits(self, batch: Batch, training: bool) -> tf.Tensor:
        """Logits [n, classes] of a batch as the training loss sees them."""
        return self.forward(batch, training).masked

    def masked(self, logits: tf.Tensor, batch: Batch) -> tf.Tensor:
        """Raw logits as the training loss sees them: multi-head masked, single head not."""
        value = self.example_loss.masked_value
        if self.heads is None or value is None:
            return at_least_float32(logits)
        return self.heads.masked(logits, batch.tasks, batch.weights, value)

    def as_batch(self, data: Any, task: tf.Tensor | None = None) -> Batch:
        """What `fit` or `evaluate` delivers as a batch, with targets for the compiled loss.

        Inputs in float64 become Keras's `floatx`, unless the network's weights are in float64.

        Args:
            data: As Keras delivers it.
            task: int32 scalar, of examples that come without one; None for the latest task.
        """
        task = self.task.value if task is None else task
        batch = self.example_loss.counted(as_batch(data, task, self.example_loss.targets))
        if any(v.dtype == "float64" for v in self.network.variables):
            return batch
        return batch._replace(inputs=tf.nest.map_structure(as_floatx, batch.inputs))

    def example_losses(self, outputs: tf.Tensor, batch: Batch) -> tf.Tensor:
        """The compiled loss of each example, [n].

        Args:
            outputs: [n, ...], masked.
            batch: The examples.
        """
        return self.example_loss(outputs, batch.labels)

    def regularization(self) -> tf.Tensor | float:
        """The sum of the network's own losses; those of activities are of its last pass."""
        losses = [tf.reduce_sum(at_least_float32(loss)) for loss in self.network.losses]
        return tf.add_n(losses) if losses else 0.0

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments, for saving."""
        return {
            "network": keras.saving.serialize_keras_object(self.network),
            "heads": None if self.heads is None else [list(head) for head in self.heads.classes],
            "mask": self.mask,
            "stream_mask": self.stream_mask,
            "seed": self.seed,
            "name": self.name,
            **({} if self.known_classes is None else {"known_classes": self.known_classes}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A model from `get_config`; its parts that are Keras objects are rebuilt first."""
        return cls(**{k: _rebuilt(value) for k, value in config.items()})

    def check_labels(
        self, labels: Any, tasks: Any, weights: Any = None, table: np.ndarray | None = None
    ) -> None:
        """Check tasks and weights, and that labels are classes, where the loss has classes.

        Args:
            labels: As `fit` and `evaluate` take them.
            tasks: int [n] or a scalar; None where they are not known.
            weights: [n], 0 for padding; None for no padding.
            table: bool [tasks, classes], the classes of each task; None for those of the heads.

        Raises:
            UserError: Labels are no whole numbers, one is no class of its task, a task id is out
                of range, or a weight below 0.
        """
        check_unmasked(labels, "labels")
        check_weights(weights)
        if self.example_loss.checks_labels:
            table = self.head_table() if table is None else table
            if self.example_loss.takes_class_numbers:
                check_is_one_number(labels)
            else:
                labels = rows_to_numbers(labels, self.num_classes)
            check_labels(labels, tasks, weights, self.num_classes, table)
        check_ids_range(tasks)

    def _know(self, classes: Sequence[int]) -> None:
        try:
            known = sorted(map(operator.index, classes))
        except TypeError as error:
            raise UserError(
                f"received known_classes={classes!r}, expected class numbers such as [0, 1]"
            ) from error
        if self.heads is not None:
            raise UserError(
                f"received known_classes={known} and heads: a head masks by its own classes alone, "
                "so leave known_classes out"
            )
        outside = [label for label in known if not 0 <= label < self.num_classes]
        if outside:
            raise UserError(
                f"received {outside[0]} among known_classes, but the network has logits for the "
                f"classes 0 to {self.num_classes - 1}"
            )
        self.seen_classes.assign(np.isin(np.arange(self.num_classes), known))
        self.known_classes = known

    def _state(self, name: str, shape: tuple[int, ...], dtype: str, value: float) -> keras.Variable:
        return self.add_weight(
            name=name, shape=shape, dtype=dtype, trainable=False, autocast=False,
            initializer=keras.initializers.Constant(value),
        )  # fmt: skip


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The mean of values [..., n] by weights float32 [..., n]: [...]; 0 where all weights are."""
    weights = tf.cast(weights, values.dtype)
    return tf.math.divide_no_nan(
        tf.reduce_sum(values * weights, axis=-1), tf.reduce_sum(weights, axis=-1)
    )


def _rebuilt(value: Any) -> Any:
    is_object = isinstance(value, dict) and "class_name" in value
    return keras.saving.deserialize_keras_object(value) if is_object else value
