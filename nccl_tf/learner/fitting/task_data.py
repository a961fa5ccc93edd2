"""What `fit` and `evaluate` take of a task of a stream: its batches, in the order of each epoch."""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.learner.fitting.train_loop import listed
from nccl_tf.streams.epochs import EpochBatches
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.task import JointTask, Task

BATCH_SIZE = 10
"""Examples in a batch of a task, where the user names no number: that of `Task.train_batches`."""


class EpochOrder(keras.callbacks.Callback):
    """Gives the batches of a task the order of each epoch.

    Args:
        epochs: The batches.
    """

    def __init__(self, epochs: EpochBatches) -> None:
        super().__init__()
        self._epochs = epochs

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epochs.begin(epoch)


class FitArguments(NamedTuple):
    """Arguments of `fit` in place of a task.

    Attributes:
        x: The task's batches.
        callbacks: The user's callbacks, after the one that orders the batches.
        task_id: The task's number.
    """

    x: Any
    callbacks: list[Any]
    task_id: int


def is_task(x: Any) -> bool:
    """Whether `fit` or `evaluate` received a task of a stream.

    Raises:
        UserError: It received a whole stream.
    """
    if isinstance(x, Stream):
        raise UserError(
            f"received the stream {x.name!r}: expected data of one task; learn all tasks with "
            "nccl_tf.learn(model, stream), or call fit for each task of the stream"
        )
    return isinstance(x, (Task, JointTask))


def fit_arguments(
    task: Task | JointTask,
    beside: dict[str, Any],
    batch_size: int | None,
    epochs: int,
    seed: int,
    callbacks: Any,
) -> FitArguments:
    """What `fit` takes in place of a task.

    Args:
        task: The task.
        beside: Arguments that a task leaves no room for, by name.
        batch_size: Examples in a batch; None for 10.
        epochs: Passes over the task, each in another order.
        seed: Seed of the orders.
        callbacks: As for `keras.Model.fit`.

    Raises:
        UserError: One of `beside` is set, or a number is below 1.
    """
    for name, value in beside.items():
        if value is not None:
            raise UserError(
                f"received a task of a stream and {name}=...: a task has labels, weights and test "
                f"examples itself; leave {name} out, or fit arrays: fit(*task.train, ...)"
            )
    batches = task.epochs(batch_size or BATCH_SIZE, seed, epochs)
    callbacks = [EpochOrder(batches), *listed(callbacks)]
    return FitArguments(batches.batches, callbacks, task.task_id)


def test_data(x: Any, batch_size: int | None) -> Any:
    """What `evaluate` takes in place of a task: the batches of its test examples.

    Raises:
        UserError: The tasks are joined, or the batch size is below 1.
    """
    _check_has_test_examples(x)
    return x.test_batches(batch_size or 500)


def test_inputs(x: Any, task_id: int | None) -> tuple[Any, int]:
    """What `predict` takes in place of a task: the inputs of its test examples, and its number.

    Raises:
        UserError: The tasks are joined, or a number is given beside the task.
    """
    _check_has_test_examples(x)
    if task_id is not None:
        raise UserError(
            f"received task {x.task_id} of a stream and task_id={task_id}: leave task_id out"
        )
    # Keras takes texts as tensors alone.
    inputs = tf.nest.map_structure(
        lambda column: tf.constant(column) if column.dtype.kind == "U" else column, x.test.inputs
    )
    return inputs, x.task_id


def _check_has_test_examples(x: Any) -> None:
    if isinstance(x, JointTask):
        raise UserError(
            "received a JointTask, which has no test examples: expected one of its tasks, each of "
            "`joint.tasks`"
        )
