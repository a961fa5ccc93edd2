"""The callbacks of `fit`: checks, the first pass, orders of epochs, the progress bar."""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras

from nccl_tf.errors import LearningFailedError, checked_name
from nccl_tf.gradients import loss_scale
from nccl_tf.learner.checks import check_weights
from nccl_tf.streams.epochs import EpochBatches

LOGGER = logging.getLogger("nccl_tf")

LOGS = ("metrics", "all")
CHECK_EVERY = 50
"""Batches between two looks at the learner's counters, which wait for the device."""


def whole_epoch(batches: int | None, callbacks: Iterable[Any]) -> int | None:
    """Batches of an epoch, of which a fit may take the rest alone.

    The steps of a call follow from the whole, so that calls end where they would have ended in a
    training that was not stopped: XLA rounds the steps of another program otherwise.

    Args:
        batches: Of the fit.
        callbacks: Those of the fit; one with `whole_epoch` says what it takes the rest of.
    """
    return next((c.whole_epoch for c in callbacks if hasattr(c, "whole_epoch")), batches)


def first_pass(initial_epoch: int, batches: int | None, steps_per_epoch: int | None) -> range:
    """The epochs of a `fit` that are its first pass over the data.

    Args:
        initial_epoch: The number of the first epoch.
        batches: Of the data; None where it is not known, as of a generator.
        steps_per_epoch: As `fit` received it: Keras goes on with the data in the next epoch, and
            begins again in the one after that in which they ended.
    """
    if steps_per_epoch is None:
        return range(initial_epoch, initial_epoch + 1)
    if batches is None:
        return range(initial_epoch, sys.maxsize)
    return range(initial_epoch, initial_epoch - (-batches // steps_per_epoch))


# ---- callbacks ---------------------------------------------------------------------------------


def listed(callbacks: Any) -> list[Any]:
    """The callbacks of `fit` as a list: None, a callback, several, or a CallbackList."""
    callbacks = getattr(callbacks, "callbacks", callbacks) or []
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


def callback_list(
    callbacks: Any,
    verbose: Any,
    begins_task: bool,
    check: Callable[[], None],
    logs: str = "metrics",
) -> list[Any]:
    """The callbacks of a `fit`: the user's, then the checks, then the progress bar.

    Args:
        callbacks: The user's.
        verbose: As for `keras.Model.fit`; 0 for no progress bar.
        begins_task: Whether the task begins with this fit.
        check: As for `FitChecks`.
        logs: What the bar shows, as `Learner.fit` takes it.
    """
    checked_name("logs", logs, LOGS)
    bar = [ShortProgress()] if verbose != 0 and logs == "metrics" else []
    return [*listed(callbacks), FitChecks(begins_task, check), *bar]


class FitChecks(keras.callbacks.Callback):
    """Ends a fit with wrong labels, failed learning, another task, or a rate that is not defined.

    It looks when an epoch begins and ends and every `CHECK_EVERY` batches in between. It comes
    after the user's callbacks, so that it sees the rates that they set and the state that they
    load.

    Args:
        begins_task: Whether the task begins with this fit, so that nothing has been learned of it.
        check: Raises UserError where a label was wrong, and LearningFailedError where too many
            steps in a row were skipped.
    """

    def __init__(self, begins_task: bool, check: Callable[[], None]) -> None:
        super().__init__()
        self._begins_task, self._check_goes_on = begins_task, check
        self._batches = self._done = self._checked = self._skipped = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Check the task, and note how many steps were skipped before.

        Raises:
            UserError: A callback has loaded the state of another task.
        """
        self.model.progress.check_task()
        self._skipped = int(self.model.progress.skipped.numpy())

    def on_train_end(self, logs: Any = None) -> None:
        """Say how many steps of the fit were skipped.

        Raises:
            UserError: A label is wrong.
            LearningFailedError: All of them were, of a task that begins with this fit, or a weight
                is not finite.
        """
        check_weights(self.model.network)
        skipped = int(self.model.progress.skipped.numpy()) - self._skipped
        # A loss scale begins with steps that overflow.
        is_scaled = loss_scale(self.model.optimizer) is not None
        if self._begins_task and 0 < self._batches <= skipped and not is_scaled:
            raise LearningFailedError(
                f"no step of this fit had a finite loss and gradient, {skipped} of {skipped}, and "
                "nothing is learned of its task: look for NaN and infinity in the inputs, or take "
                "a lower rate"
            )
        if skipped:
            self.model.warn_once(
                "skipped",
                f"{skipped} step{'s' * (skipped != 1)} of this fit had no finite loss and gradient "
                "and changed nothing: look for NaN and infinity in the inputs, or take a lower "
                "rate; model.skipped counts them",
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Check the task and the rate that the epoch begins with.

        Raises:
            UserError: A callback has loaded the state of another task, or the method is not defined
                at this rate.
        """
        self.model.progress.check_task()
        self._done = self._checked = 0
        self.model.check_rate()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Check all, every so often.

        Raises:
            UserError: A label is wrong, or the method is not defined at the learning rate.
            LearningFailedError: Ten steps in a row were not finite.
        """
        self._batches, self._done = self._batches + batch + 1 - self._done, batch + 1
        if batch + 1 - self._checked >= CHECK_EVERY:
            self._checked = batch + 1
            self._check()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Check all.

        Raises:
            UserError: A label is wrong, or the method is not defined at the learning rate.
            LearningFailedError: Ten steps in a row were not finite.
        """
        self._check()

    def _check(self) -> None:
        self._check_goes_on()
        self.model.check_rate()


class FirstPass(keras.callbacks.Callback):
    """Lets a learner store and count what comes in the first pass of a fit, and no more.

    Args:
        epochs: The numbers of the epochs of that pass.
    """

    def __init__(self, epochs: range) -> None:
        super().__init__()
        self._epochs = epochs

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Say whether it stores, before the first batch of an epoch."""
        self.model.storage.set_open(epoch in self._epochs)


class ShortProgress(keras.callbacks.ProgbarLogger):
    """Keras's progress bar, of loss and compiled metrics without the method's own logs."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Show the means so far."""
        super().on_train_batch_end(batch, self._shown(logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Show the means of the epoch."""
        super().on_epoch_end(epoch, self._shown(logs))

    def _shown(self, logs: Mapping[str, Any] | None) -> dict[str, Any]:
        hidden = getattr(self.model, "log_names", ())[1:]
        shown = (logs or {}).items()
        return {name: value for name, value in shown if name.removeprefix("val_") not in hidden}


class EpochOrder(keras.callbacks.Callback):
    """Gives the batches of a task the order of each epoch.

    Args:
        epochs: The batches.
    """

    def __init__(self, epochs: EpochBatches) -> None:
        super().__init__()
        self._epochs = epochs

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epochs.begin(epoch)
