"""The classes that the stream loss's softmax runs over, where a single head has them all.

They travel with the stream batch, as a column, so that a part of a batch has those of the whole. A
memory batch has no such column, and all classes.
"""

from typing import Any

import tensorflow as tf

from nccl_tf.arguments.hyperparameters import STREAM_MASK
from nccl_tf.batch import Batch, class_numbers
from nccl_tf.errors import UserError
from nccl_tf.learner.heads import select_logits
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.refused import check_refused

COLUMN = "stream_classes"
"""Name of the stream batch's column, bool [n, classes]."""


def with_stream_classes(learner: Any, batch: Batch) -> Batch:
    """A stream batch with the classes of its softmax; as it is where these are all.

    "present" are the classes of the batch, on all replicas together; "seen" those of the stream so
    far, with these. Padding has none. Graph code, outside of conditionals.
    """
    if learner.stream_mask == "all":
        return batch
    labels = tf.one_hot(class_numbers(batch.labels), learner.num_classes, True, False)
    labels &= (batch.weights > 0)[:, None]
    classes = learner.replicas.any(tf.reduce_any(labels, axis=0))
    if learner.stream_mask == "seen":
        classes |= learner.seen_classes.value
    rows = tf.broadcast_to(classes, tf.shape(labels))
    return batch._replace(extras={**batch.extras, COLUMN: rows})


def as_stream_batch(learner: Any, data: Any) -> Batch:
    """What `fit` delivers as a batch, with the classes of its softmax."""
    return with_stream_classes(learner, learner.as_batch(data))


def masked_for_stream(logits: tf.Tensor, batch: Batch) -> tf.Tensor:
    """Logits [n, classes] with -1e9 where the stream loss's softmax does not run."""
    return select_logits(batch.extras[COLUMN], logits) if COLUMN in batch.extras else logits


def check_stream_mask(learner: Any) -> None:
    """Check that `stream_mask` is known and has a meaning for a learner.

    Raises:
        UserError: It is not, or has none.
    """
    STREAM_MASK.check(learner.stream_mask)
    if learner.stream_mask == "all":
        return
    given = f"received stream_mask={learner.stream_mask!r}"
    check_refused(learner, "stream_mask", learner.stream_mask)
    if learner.heads is not None:
        raise UserError(
            f"{given} and heads: a head is its mask already, so leave one of the two out"
        )


def check_loss(learner: Any, loss: ExampleLoss) -> None:
    """Check that the stream's loss has a softmax over logits, where some are to be masked.

    Raises:
        UserError: It has none.
    """
    if learner.stream_mask != "all" and not (loss.from_logits and loss.masked_value is not None):
        raise UserError(
            f"received {loss.name} with stream_mask={learner.stream_mask!r}, which masks a softmax "
            "over logits: leave it out, or take a categorical cross-entropy with from_logits=True"
        )
