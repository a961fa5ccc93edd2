"""Heads as masks on the logits of one output layer."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from nccl_tf.arguments.choices import MASKS
from nccl_tf.batch import Batch, class_numbers
from nccl_tf.errors import UserError, checked_name
from nccl_tf.memories.task_classes import classes_of_tasks
from nccl_tf.xla import Argument

MASKED_LOGIT = -1e9
"""Takes the place of a masked logit: finite, so that no loss or gradient is ever NaN."""
STREAM_CLASSES = "stream_classes"
"""Column of a stream batch, bool [n, classes]: the classes that its softmax runs over.

It travels with the batch, so that a part of a batch has the classes of the whole. A memory batch
has no such column, and all classes.
"""


def classes_of(batch: Batch, count: int) -> tf.Tensor:
    """bool [count]: which of so many classes occur in a batch, those of padding left out."""
    labels = tf.where(batch.weights > 0, class_numbers(batch.labels), -1)
    return tf.reduce_any(tf.one_hot(labels, count, True, False), axis=0)


class HeadMasks:
    """The classes of each task, and the masks on the logits that they make.

    Args:
        heads: The classes of each task, in the order of the task ids.
        num_classes: Number of logits.
        mask: "own" masks each example by its own task; "union" masks all of a batch by the union
            of its tasks, as the TF1 code base does for some methods.

    Attributes:
        classes: The classes of each task.
        table: bool [tasks, classes], whether a class is one of a task's.

    Raises:
        UserError: `mask` is unknown, there are no heads, or one names a class that there is no
            logit for, or what is no class number.
    """

    def __init__(self, heads: Sequence[Sequence[int]], num_classes: int, mask: str = "own"):
        self.classes = tuple(map(tuple, classes_of_tasks("heads", heads)))
        if not self.classes:
            raise UserError(
                "received no heads, expected the classes of each task: take stream.heads, or None "
                "for a single head"
            )
        self.mask = checked_name("mask", mask, MASKS)
        self.table = np.zeros((len(self.classes), num_classes), bool)
        for task, head in enumerate(self.classes):
            if not head or min(head) < 0 or max(head) >= num_classes:
                raise UserError(
                    f"received the classes {list(head)} as the head of task {task}, but the "
                    f"network has logits for the classes 0 to {num_classes - 1}"
                )
            self.table[task, list(head)] = True
        self._masks = Argument(self.table, "bool")

    def of(self, tasks: tf.Tensor) -> tf.Tensor:
        """bool [n, classes]: the classes of the tasks (int64 [n])."""
        return tf.gather(self._masks.read(), tasks)

    def masked(
        self,
        logits: tf.Tensor,
        tasks: tf.Tensor,
        weights: tf.Tensor | None = None,
        value: float = MASKED_LOGIT,
    ) -> tf.Tensor:
        """Put -1e9 where a logit belongs to another task; its gradient is then exactly zero.

        Args:
            logits: [n, classes].
            tasks: int64 [n], the task of each example.
            weights: float32 [n]; with the "union" mask, examples of weight 0 add no task.
            value: What to put in place of -1e9: 0 for probabilities.
        """
        keep = self.of(tasks)
        if self.mask == "union":
            counted = keep if weights is None else keep & (weights > 0)[:, None]
            keep = tf.reduce_any(counted, axis=0, keepdims=True)
        return select_logits(keep, logits, value)


def select_logits(keep: tf.Tensor, logits: tf.Tensor, value: float = MASKED_LOGIT) -> tf.Tensor:
    """The logits in at least float32 where `keep` (bool, broadcast) holds, `value` elsewhere."""
    logits = at_least_float32(logits)
    return tf.where(keep, logits, tf.constant(value, logits.dtype))


def at_least_float32(logits: tf.Tensor) -> tf.Tensor:
    """Logits in float32, or in float64 if they are."""
    return logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)


def without_stream_classes(batch: Batch) -> Batch:
    """A batch as memories store it, without what the stream's loss alone looks at."""
    extras = {name: part for name, part in batch.extras.items() if name != STREAM_CLASSES}
    return batch._replace(extras=extras)
