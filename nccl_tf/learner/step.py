"""What a step leaves, and who may look at it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from nccl_tf.batch import Batch


class Outcome(NamedTuple):
    """What there is to measure of one step, or of several along one more leading dimension.

    Attributes:
        logits: [n, classes], as in `Step`.
        values: float32 [quantities], as in `Step`; the loss is not finite if it was skipped.
        measured: float32 [quantities], as in `Step`; all 0 if the step was skipped.
    """

    logits: tf.Tensor
    values: tf.Tensor
    measured: tf.Tensor

    def counted(self, weights: tf.Tensor) -> tf.Tensor:
        """The weights of the steps' examples, float32 [..., n], at 0 where a step was skipped."""
        return tf.where(tf.math.is_finite(self.values[..., :1]), weights, 0.0)


def one_after_another(
    count: tf.Tensor,
    dtypes: Outcome,
    take: Callable[[tf.Tensor, Any], tuple[Outcome, Any]],
    state: Any = (),
) -> tuple[Outcome, Any]:
    """Steps in a loop of the graph, one at a time: what they leave, stacked, and the last state.

    Args:
        count: int32 scalar, how many steps.
        dtypes: The dtype of each part of an outcome.
        take: From a step's number, int32 scalar, and the state before it to what the step leaves
            and the state after it.
        state: The state before the first step; tensors in any structure.
    """

    def body(step: tf.Tensor, state: Any, found: Outcome) -> tuple[tf.Tensor, Any, Outcome]:
        outcome, state = take(step, state)
        parts = zip(found, outcome, strict=True)
        return step + 1, state, Outcome(*(array.write(step, part) for array, part in parts))

    none_yet = Outcome(*(tf.TensorArray(dtype, size=count) for dtype in dtypes))
    start = tf.constant(0), state, none_yet
    _, state, found = tf.while_loop(lambda step, *_: step < count, body, start)
    return Outcome(*(array.stack() for array in found)), state


class Observer:
    """Sees every step inside its graph, and the end of every task; given to `Learner.observe`."""

    def before_update(self, learner: Any, batch: Batch, replay: Batch | None) -> Any:
        """Called in the graph before a step, with the weights as they are.

        Args:
            learner: The learner.
            batch: The stream batch.
            replay: The memory batch of the step, where it has been drawn already.

        Returns:
            Whatever `after_update` is to receive.
        """

    def after_update(
        self, learner: Any, batch: Batch, values: tf.Tensor, measured: tf.Tensor, noted: Any
    ) -> None:
        """Called in the graph after a step, before the memory is written.

        Args:
            learner: The learner.
            batch: The stream batch, with weights 0 if the step was skipped.
            values: As in `Step`.
            measured: As in `Step`, all 0 if the step was skipped.
            noted: What `before_update` returned.
        """

    def task_ended(self, learner: Any, task_id: int) -> None:
        """Called between steps when a task has ended, and the learner has closed it."""
