"""The callbacks and the steps per call of `fit`."""

import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras

from nccl_tf.errors import LearningFailedError, checked_name
from nccl_tf.gradients import loss_scale
from nccl_tf.learner.checks import check_weights
from nccl_tf.networks.inspection import has_convolutions
from nccl_tf.streams.epochs import EpochBatches

LOGGER = logging.getLogger("nccl_tf")

DENSE_STEPS, CONVOLUTION_STEPS = 200, 50
"""The most steps in one call, where the user names no number.

A call costs as much as some six steps of a small dense network, and a signal or a checkpoint, which
waits for its end, should not wait long.
"""
LOGS = ("metrics", "all")
CHECK_EVERY = 50
"""Batches between two looks at the learner's counters, which wait for the device."""
_FREQUENCIES = ("update_freq", "log_freq", "save_freq")
"""Attributes of callbacks, Keras's and those of W&B, that name a number of batches."""

# ---- steps in a call ---------------------------------------------------------------------------


def convolves(network: keras.Model) -> bool:
    """Whether a pass of a network takes as long as convolutions do."""
    return has_convolutions(network, frozen=True)


def most_steps(network: keras.Model) -> int:
    """The most steps in one call of the graph that is fast and not long."""
    return CONVOLUTION_STEPS if convolves(network) else DENSE_STEPS


def steps_per_execution(
    most: int,
    current: int,
    batches: int | None,
    steps_per_epoch: int | None,
    callbacks: Iterable[Any],
    asked: bool,
    is_fixed: bool = False,
) -> int:
    """Steps in one call of the graph.

    Keras runs past a `steps_per_epoch` that the number does not divide, and tells callbacks the
    number of a call's last batch alone. A change of the number compiles the step again, so the
    current number stays where it serves.

    Args:
        most: No more than this.
        current: The number of now.
        batches: Of an epoch; None where it is not known.
        steps_per_epoch: As `fit` received it.
        callbacks: Those of `fit`.
        asked: Whether the user has named `most` in `compile`.
        is_fixed: Whether a smaller number than `most` has a price, whatever the epoch's length.

    Returns:
        The largest number that divides `steps_per_epoch`, the frequencies of callbacks and, where
        one has a frequency, the epoch; where it can be 10 or more, or the whole, a divisor of the
        epoch.
    """
    if not asked and ((batches is None and not is_fixed) or any(map(_sees_batches, callbacks))):
        return 1
    periods = [getattr(callback, name, None) for callback in callbacks for name in _FREQUENCIES]
    counted = [period for period in periods if isinstance(period, int) and period > 0]
    whole = [batches if counted else None, steps_per_epoch]
    counted += [period for period in whole if period]

    if (asked or is_fixed) and not counted:
        return most
    common = math.gcd(*counted)
    numbers = [n for n in (_divisors(common) if counted else range(1, most + 1)) if n <= most]
    if asked or is_fixed or batches is None:
        return numbers[-1]
    if current in numbers and 2 * current >= min(numbers[-1], batches):
        return current
    divisors = [n for n in numbers if batches % n == 0 and (n >= 10 or n == batches)]
    return divisors[-1] if divisors else numbers[-1]


def whole_epoch(batches: int | None, callbacks: Iterable[Any]) -> int | None:
    """Batches of an epoch, of which a fit may take the rest alone.

    The steps of a call follow from the whole, so that calls end where they would have ended in a
    training that was not stopped: XLA rounds the steps of another program otherwise.

    Args:
        batches: Of the fit.
        callbacks: Those of the fit; one with `whole_epoch` says what it takes the rest of.
    """
    return next((c.whole_epoch for c in callbacks if hasattr(c, "whole_epoch")), batches)


def _divisors(number: int) -> list[int]:
    """All divisors in order, found in time proportional to the root of a number of any size."""
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


def _sees_batches(callback: Any) -> bool:
    """Whether a callback of the user's own acts on batches, and so wants to see each of them."""
    verbs = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
    if any(verb in vars(callback) for verb in verbs):  # a LambdaCallback
        return True
    if isinstance(callback, keras.callbacks.TensorBoard):  # counts calls as batches
        return isinstance(callback.update_freq, int)
    if type(callback).__module__.partition(".")[0] in ("keras", "nccl_tf"):
        return False
    base = keras.callbacks.Callback
    return any(getattr(type(callback), verb, None) is not getattr(base, verb) for verb in verbs)


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
    """Lets the memories of a learner store what comes in the first pass of a fit, and no more.

    Args:
        epochs: The numbers of the epochs of that pass.
    """

    def __init__(self, epochs: range) -> None:
        super().__init__()
        self._epochs = epochs

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Say whether they store, before the first batch of an epoch."""
        for memory in self.model.memories():
            memory.set_stores(epoch in self._epochs)


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
