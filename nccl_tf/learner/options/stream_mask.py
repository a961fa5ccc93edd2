"""The softmax of the stream's loss over a part of the classes."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.arguments.choices import NEW_CLASSES
from nccl_tf.arguments.hyperparameters import STREAM_MASK
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.heads import STREAM_CLASSES, HeadMasks, classes_of
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.step import Step
from nccl_tf.memories.memory import Memory


class StreamMask(Option):
    """Lets the stream's softmax run over the classes of the batch, the task or the stream so far.

    Args:
        stream_mask: "present" (the classes of the stream batch, of all replicas together), "task"
            (those of the open task so far, too) or "seen" (those of the stream so far, too).
        seen: bool [classes], the learner's variable of the classes seen.
        heads: The learner's heads.
        state: Makes variables that are saved with the learner, `Learner.state`.
        memory: The learner's memory.

    Raises:
        UserError: It is unknown, there are heads, or new classes would meet old ones in no loss:
            neither in the stream's, which is masked, nor in that of a memory which reads nothing of
            the open task. The memory's loss then presses down the logits of the new classes.
    """

    def __init__(
        self,
        stream_mask: str,
        seen: keras.Variable,
        heads: HeadMasks | None,
        state: Callable[..., keras.Variable],
        memory: Memory | None = None,
    ):
        self.stream_mask, self._seen = STREAM_MASK.check(stream_mask), seen
        self._of_task = None
        if stream_mask == "task":
            self._of_task = state("classes_of_task", lambda: tuple(seen.shape), "bool")
        if heads is not None:
            raise UserError(
                f"received stream_mask={stream_mask!r} and heads: a head is its mask already, "
                "so leave one of the two out"
            )
        if stream_mask in NEW_CLASSES and memory is not None and not memory.reads_open_task:
            raise UserError(
                f"received stream_mask={stream_mask!r} and a {type(memory).__name__} that reads "
                "nothing of the open task: no loss compares new classes with old ones then, and "
                'new ones are not learned; take nccl_tf.ReservoirMemory, or stream_mask="all"'
            )

    @classmethod
    def of(cls, stream_mask: str, *args: Any) -> "StreamMask | None":
        """As the constructor; None for "all", the mask that hides nothing."""
        return None if stream_mask == STREAM_MASK.default else cls(stream_mask, *args)

    def on_compile(self, optimizer: Any, loss: ExampleLoss) -> None:
        if not loss.masks_stream:
            every = 'stream_mask="all"'
            raise UserError(
                f"received {loss.described} and stream_mask={self.stream_mask!r}, which masks the "
                f"softmax over the logits of one class for each example: {loss.instead(every)}"
            )

    def stream_batch(self, batch: Batch) -> Batch:
        count = self._seen.shape[0]
        classes = classes_of(batch, count)
        if self.stream_mask == "seen":
            classes |= self._seen.value
        if self._of_task is not None:
            classes |= self._of_task.value
        rows = tf.broadcast_to(classes, [tf.shape(batch.weights)[0], count])
        return batch._replace(extras={**batch.extras, STREAM_CLASSES: rows})

    def after_step(self, batch: Batch, step: Step, note: Any) -> None:
        if self._of_task is not None:
            now = classes_of(batch, self._of_task.shape[0])
            self._of_task.assign(self._of_task.value | now)

    def on_task_begin(self, task_id: int) -> None:
        if self._of_task is not None:
            self._of_task.assign(tf.zeros_like(self._of_task.value))

    def get_config(self) -> dict[str, Any]:
        return {"stream_mask": self.stream_mask}
