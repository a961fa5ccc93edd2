"""Dark replay: memory examples keep the logits that the network gave when they came."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from nccl_tf.arguments.hyperparameters import DARK, REPLAY_LABELS, check_replay_weights
from nccl_tf.batch import Batch
from nccl_tf.learner.columns import LOGITS, Column, raw_logits
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.step import Logits


class DarkReplay(Option):
    """The memory loss is b times the compiled loss plus a times the distance of logits.

    Args:
        dark: a, 0 or more.
        replay_labels: b, 0 or more.
        distances: From raw logits [n, ..., classes] and a memory batch to the squared distances
            between the logits and those that the memory kept, [n].

    Raises:
        UserError: A weight is below 0, or both are 0.
    """

    def __init__(
        self,
        dark: float,
        replay_labels: float,
        distances: Callable[[tf.Tensor, Batch], tf.Tensor],
    ):
        self.dark = DARK.taken(dark)
        self.replay_labels = REPLAY_LABELS.taken(replay_labels)
        check_replay_weights(self.dark, self.replay_labels)
        self._distances = distances

    @classmethod
    def of(cls, dark: float, replay_labels: float, distances: Any) -> "DarkReplay | None":
        """As the constructor; None where the memory loss is the compiled one."""
        option = cls(dark, replay_labels, distances)
        given = option.dark, option.replay_labels
        return None if given == (DARK.default, REPLAY_LABELS.default) else option

    @property
    def columns(self) -> Mapping[str, Column]:  # type: ignore[override]
        return {LOGITS: raw_logits} if self.dark else {}

    def loss(self, losses: tf.Tensor, logits: Logits, replay: Batch) -> tf.Tensor:
        if self.replay_labels != 1.0:
            losses *= self.replay_labels
        if self.dark:
            losses += self.dark * self._distances(logits.raw, replay)
        return losses

    def get_config(self) -> dict[str, Any]:
        return {"dark": self.dark, "replay_labels": self.replay_labels}
