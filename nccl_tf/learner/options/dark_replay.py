"""Dark replay: a memory loss that also holds examples to the logits that were kept with them."""

from typing import Any

import tensorflow as tf

from nccl_tf.arguments.hyperparameters import check_replay_weights
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.heads import HeadMasks, at_least_float32
from nccl_tf.learner.task_model import weighted_mean
from nccl_tf.memories.columns import missing_columns

COLUMN = "logits"
"""Name of the memory's column."""


def logits_column(num_classes: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """The column that keeps the logits of an example, as the `extras` of `Memory`."""
    return {COLUMN: ((num_classes,), "float32")}


def logit_distances(logits: tf.Tensor, replay: Batch, heads: HeadMasks | None) -> tf.Tensor:
    """Mean squared differences between logits now and those that the memory kept, [n].

    The term of Buzzega et al., "Dark experience for general continual learning" (NeurIPS 2020),
    eq. 5, as a mean over logits as in the authors' code.

    Args:
        logits: [n, classes], before any mask.
        replay: A memory batch with the column of `logits_column`.
        heads: None to compare all logits; else those of the example's own head are.
    """
    logits = at_least_float32(logits)
    squares = tf.square(logits - tf.cast(replay.extras[COLUMN], logits.dtype))
    compared = tf.ones_like(squares) if heads is None else heads.of(replay.tasks)
    return weighted_mean(squares, compared)


def check_dark_replay(learner: Any) -> None:
    """Check that `dark` and `replay_labels` have a meaning for a learner and its memory.

    A memory that is not allocated yet gets the column that it needs.

    Args:
        learner: The learner, whose network and memory are set.

    Raises:
        UserError: They have none.
    """
    dark, labels = learner.dark, learner.replay_labels
    if (dark, labels) == (0.0, 1.0):
        return
    given = f"received dark={dark:g} and replay_labels={labels:g}"
    reason = learner.refuses.get("dark")
    if reason:
        raise UserError(f"{given}, but {type(learner).__name__} {reason}: leave both out")
    check_replay_weights(dark, labels)
    if not dark:
        return
    if len(learner.network.output_shape) != 2:
        raise UserError(
            f"{given} with outputs of shape {learner.network.output_shape[1:]}: expected one logit "
            "per class, which is what a memory keeps of an example; leave dark out"
        )
    memory, column = learner.memory, logits_column(learner.num_classes)
    if missing_columns(memory, column):
        raise UserError(
            f"{given} with a {type(memory).__name__} that keeps no logits of "
            f"{learner.num_classes} classes: build it with extras={column}, or without shapes"
        )
