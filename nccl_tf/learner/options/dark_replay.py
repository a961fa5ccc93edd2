"""Dark replay: memory examples keep the logits that the network gave when they came."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from nccl_tf.arguments.hyperparameters import DARK, REPLAY_LABELS, check_replay_weights
from nccl_tf.learner.columns import LOGITS, Column, raw_logits
from nccl_tf.learner.options.option import Option


class DarkReplay(Option):
    """The memory loss is b times the compiled loss plus a times the distance of logits.

    Args:
        dark: a, 0 or more.
        replay_labels: b, 0 or more.

    Raises:
        UserError: A weight is below 0, or both are 0.
    """

    def __init__(self, dark: float, replay_labels: float):
        self.dark = DARK.taken(dark)
        self.replay_labels = REPLAY_LABELS.taken(replay_labels)
        check_replay_weights(self.dark, self.replay_labels)

    @classmethod
    def of(cls, dark: float, replay_labels: float) -> "DarkReplay | None":
        """As the constructor; None where the memory loss is the compiled one."""
        option = cls(dark, replay_labels)
        given = option.dark, option.replay_labels
        return None if given == (DARK.default, REPLAY_LABELS.default) else option

    @property
    def columns(self) -> Mapping[str, Column]:  # type: ignore[override]
        return {LOGITS: raw_logits} if self.dark else {}

    def weighed(self, losses: tf.Tensor, distances: Callable[[], tf.Tensor]) -> tf.Tensor:
        """The training losses of a memory batch, [n]. Graph code.

        Args:
            losses: The compiled ones, [n].
            distances: Returns the distances of logits, [n]; asked for where a is not 0.
        """
        if self.replay_labels != 1.0:
            losses *= self.replay_labels
        if self.dark:
            losses += self.dark * distances()
        return losses

    def get_config(self) -> dict[str, Any]:
        return {"dark": self.dark, "replay_labels": self.replay_labels}
