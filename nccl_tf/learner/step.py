"""What a step computes, what it leaves to be logged, and who may look at it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError

Logs = dict[str, tf.Tensor]
"""Scalars by name, among those of `Learner.log_names`; what a step does not measure is left out."""


class Logits(NamedTuple):
    """What the network makes of a batch.

    Attributes:
        raw: [n, classes], before any mask.
        masked: [n, classes] in float32 or float64, -1e9 where the training loss sees no logit.
    """

    raw: tf.Tensor
    masked: tf.Tensor


class ReplayLogits(NamedTuple):
    """What the network makes of the batches of a step.

    Attributes:
        stream: Of the stream batch.
        memory: Of each memory batch.
    """

    stream: Logits
    memory: tuple[Logits, ...]


class Step(NamedTuple):
    """What a method makes of a batch.

    Attributes:
        gradients: A tensor per trainable variable, what the optimizer receives; empty once the step
            has been applied.
        logits: Of the stream batch.
        logs: Scalars by name, with "loss"; after the step has been applied, every name of
            `Learner.log_names` in float32, NaN where the step did not measure it and for a step
            that was skipped.
        state: What the method's own variables become if the step is applied; see `apply_step`.
    """

    gradients: Sequence[tf.Tensor]
    logits: Logits
    logs: Logs
    state: Any = ()

    @property
    def is_skipped(self) -> tf.Tensor:
        """bool scalar: whether an applied step was skipped."""
        return tf.logical_not(tf.math.is_finite(self.logs["loss"]))


class LoggedSteps(NamedTuple):
    """What there is to log of several steps.

    Attributes:
        logits: [steps, n, classes], masked, of the stream batches.
        values: float32 [steps, logs], in the order of `Learner.log_names`.
    """

    logits: tf.Tensor
    values: tf.Tensor


class RecordedSteps(NamedTuple):
    """What there is to log of the steps of a loop of the graph, each written once.

    Attributes:
        logits: As in `LoggedSteps`.
        values: As in `LoggedSteps`.
    """

    logits: tf.TensorArray
    values: tf.TensorArray

    @classmethod
    def none_of(cls, count: tf.Tensor, dtype: tf.DType) -> "RecordedSteps":
        """Nothing yet of so many steps (int32 scalar), with logits of a dtype."""
        return cls(tf.TensorArray(dtype, size=count), tf.TensorArray(tf.float32, size=count))

    def write(self, i: tf.Tensor, step: Step) -> "RecordedSteps":
        """With an applied step, number i (int32 scalar)."""
        masked = tf.cast(step.logits.masked, self.logits.dtype)
        vector = tf.stack(list(step.logs.values()))
        return RecordedSteps(self.logits.write(i, masked), self.values.write(i, vector))

    def first(self, count: tf.Tensor) -> LoggedSteps:
        """The first ones, an int32 scalar of them."""
        numbers = tf.range(count)
        return LoggedSteps(self.logits.gather(numbers), self.values.gather(numbers))

    def all(self) -> LoggedSteps:
        """All of them."""
        return LoggedSteps(self.logits.stack(), self.values.stack())


def with_logs(seam: str, result: Any, wanted: str = "a loss") -> tuple[Any, Logs]:
    """What a method's own seam returns, as a pair.

    Args:
        seam: Its name.
        result: What it returned.
        wanted: What comes first in it.

    Raises:
        UserError: It is no pair, or logs are no dictionary.
    """
    is_pair = isinstance(result, (tuple, list)) and len(result) == 2
    if is_pair and isinstance(result[1], Mapping):
        return result[0], dict(result[1])
    what = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
    what = "a pair without a dictionary" if is_pair else what
    raise UserError(
        f"received {what} from {seam}, expected {wanted} and a dictionary of what is logged, by "
        'the names in log_names: return loss, {"loss": loss}'
    )


def check_logs(names: Sequence[str], logs: Logs) -> None:
    """Check that a method's logs are among those that it names.

    Raises:
        UserError: One is not.
    """
    unknown = sorted(set(logs) - set(names))
    if unknown:
        raise UserError(
            f"received the logs {unknown} beside {list(names)}, which would be dropped: expected "
            "names of log_names; add them to the class's log_names, or leave them out"
        )


def one_after_another(
    count: tf.Tensor, dtype: tf.DType, take: Callable[[tf.Tensor], Step]
) -> LoggedSteps:
    """Take steps in a loop of the graph, one at a time.

    Args:
        count: int32 scalar, how many steps.
        dtype: Of the logits.
        take: From a step's number, int32 scalar, to the applied step.
    """

    def body(i: tf.Tensor, recorded: RecordedSteps) -> tuple[tf.Tensor, RecordedSteps]:
        return i + 1, recorded.write(i, take(i))

    start = tf.constant(0), RecordedSteps.none_of(count, dtype)
    return tf.while_loop(lambda i, _: i < count, body, start)[1].all()


class Observer:
    """Sees every step inside its graph, and the end of every task; see `Learner.observe`."""

    def before_step(self, learner: Any, batch: Batch, replay: Batch | None) -> Any:
        """Called in the graph before a step, with the weights as they are.

        Args:
            learner: The learner.
            batch: The stream batch.
            replay: The memory batch of the step, where it has been drawn already.

        Returns:
            Whatever `after_step` is to receive.
        """

    def after_step(self, learner: Any, batch: Batch, step: Step, note: Any) -> None:
        """Called in the graph after a step, before the memory is written.

        Args:
            learner: The learner.
            batch: The stream batch, with weights 0 if the step was skipped.
            step: The applied step.
            note: What `before_step` returned.
        """

    def on_task_end(self, learner: Any, task_id: int) -> None:
        """Called between steps when a task has ended, and the learner has closed it."""
