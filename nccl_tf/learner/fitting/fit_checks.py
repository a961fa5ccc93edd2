"""The checks that end a `fit` which cannot go on."""

from typing import Any

import keras

from nccl_tf.errors import LearningFailedError
from nccl_tf.learner.fitting.hints import hint_of_skipped

SKIPS_IN_A_ROW = 10
"""After so many steps in a row without a finite loss and gradient, learning has failed."""
CHECK_EVERY = 50
"""Batches between two looks at the learner's counters, which wait for the device."""


class FitChecks(keras.callbacks.Callback):
    """Ends a fit whose learning has failed, or whose learning rate has left the method's range.

    It looks when an epoch begins and ends and every `CHECK_EVERY` batches in between. It comes
    after all other callbacks, so that it sees the rates that they set.
    """

    def __init__(self) -> None:
        super().__init__()
        self._checked = self._skipped = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Note how many steps were skipped before."""
        self._skipped = int(self.model.skipped.numpy())

    def on_train_end(self, logs: Any = None) -> None:
        """Say how many steps of the fit were skipped."""
        hint_of_skipped(self.model, int(self.model.skipped.numpy()) - self._skipped)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Check the rate that the epoch begins with.

        Raises:
            UserError: The method is not defined at this rate.
        """
        self._checked = 0
        self.model.check_rate()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Check all, every so often.

        Raises:
            LearningFailedError: Ten steps in a row were not finite.
            UserError: The method is not defined at the learning rate.
        """
        if batch + 1 - self._checked >= CHECK_EVERY:
            self._checked = batch + 1
            self._check()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Check all.

        Raises:
            LearningFailedError: Ten steps in a row were not finite.
            UserError: The method is not defined at the learning rate.
        """
        self._check()

    def _check(self) -> None:
        check_learns(self.model)
        self.model.check_rate()


def check_learns(learner: Any) -> None:
    """Check that not too many steps in a row were skipped.

    Raises:
        LearningFailedError: Ten steps in a row were not finite.
    """
    if int(learner.skipped_in_a_row.numpy()) >= SKIPS_IN_A_ROW:
        rate = float(keras.ops.convert_to_numpy(learner.optimizer.learning_rate))
        raise LearningFailedError(
            f"{SKIPS_IN_A_ROW} steps in a row had no finite loss and gradient, at the learning "
            f"rate {rate:g}, and nothing is learned from them: look for NaN and infinity in "
            "the inputs or take a lower rate; the next fit goes on from the last finite step"
        )
