"""The checks that end a `fit` which cannot go on."""

from typing import Any

import keras
import numpy as np

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

    Args:
        begins_task: Whether the task begins with this fit, so that nothing has been learned of it.
    """

    def __init__(self, begins_task: bool = False) -> None:
        super().__init__()
        self._begins_task = begins_task
        self._batches = self._done = self._checked = self._skipped = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Note how many steps were skipped before."""
        self._skipped = int(self.model.skipped.numpy())

    def on_train_end(self, logs: Any = None) -> None:
        """Say how many steps of the fit were skipped.

        Raises:
            LearningFailedError: All of them were, of a task that begins with this fit, or a weight
                is not finite.
        """
        check_weights(self.model)
        skipped = int(self.model.skipped.numpy()) - self._skipped
        # A loss scale begins with steps that overflow.
        if self._begins_task and 0 < self._batches <= skipped and self.model.loss_scale() is None:
            raise LearningFailedError(
                f"no step of this fit had a finite loss and gradient, {skipped} of {skipped}, and "
                "nothing is learned of its task: look for NaN and infinity in the inputs, or take "
                "a lower rate"
            )
        hint_of_skipped(self.model, skipped)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Check the rate that the epoch begins with.

        Raises:
            UserError: The method is not defined at this rate.
        """
        self._done = self._checked = 0
        self.model.check_rate()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Check all, every so often.

        Raises:
            LearningFailedError: Ten steps in a row were not finite.
            UserError: The method is not defined at the learning rate.
        """
        self._batches, self._done = self._batches + batch + 1 - self._done, batch + 1
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
        LearningFailedError: Ten steps in a row were not finite, or a weight is not.
    """
    if int(learner.skipped_in_a_row.numpy()) >= SKIPS_IN_A_ROW:
        check_weights(learner)
        rate = float(keras.ops.convert_to_numpy(learner.optimizer.learning_rate))
        raise LearningFailedError(
            f"{SKIPS_IN_A_ROW} steps in a row had no finite loss and gradient, at the learning "
            f"rate {rate:g}, and nothing is learned from them: look for NaN, infinity and values "
            "far above 1 in the inputs or take a lower rate; the next fit goes on from the last "
            "finite step"
        )


def check_weights(learner: Any) -> None:
    """Check that the network's weights are finite: no step is, from weights that are not.

    Raises:
        LearningFailedError: One is not.
    """
    for weight in learner.network.weights:
        is_float = keras.backend.is_float_dtype(weight.dtype)
        if is_float and not np.isfinite(keras.ops.convert_to_numpy(weight)).all():
            raise LearningFailedError(
                f"the weight {weight.path} is infinite or NaN, and nothing more is learned: build "
                "the network again, or load its weights, and take a lower rate"
            )
