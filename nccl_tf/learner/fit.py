"""One call of `fit`: its data, how its epochs go over them, and what is looked at meanwhile."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from nccl_tf.errors import LearningFailedError, checked_name
from nccl_tf.learner.data import FitData
from nccl_tf.learner.execution import Execution
from nccl_tf.learner.preprocessor import prepared_data, prepares
from nccl_tf.learner.progress import Progress

LOGS = ("metrics", "all")
CHECK_EVERY = 50
"""Batches between two looks at the learner's counters, which wait for the device."""


class Fit(keras.callbacks.Callback):
    """One call of `fit`, which Keras tells of its epochs and batches.

    It is what Keras's `EpochIterator` is to its `fit`: the data in one form, their batches, the
    orders of the epochs. It comes after the user's callbacks, so that it sees the rates that they
    set and the state that they load.

    Args:
        data: To train on.
        validation: To validate on; None for none.
        epochs: The number of the last epoch, from 1.
        initial_epoch: Epochs that have been before.
        steps_per_epoch, validation_steps: As `fit` received them.
        resumes: Whether an earlier fit has passed over these examples.

    Attributes:
        data, validation, steps_per_epoch: The arguments.
        batches: Of an epoch; None where it is not known.
        first_pass: The epochs that are the first pass over the data.
        steps_done: Batches that were trained on.
    """

    def __init__(
        self,
        data: FitData,
        validation: FitData | None = None,
        *,
        epochs: int = 1,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        resumes: bool = False,
    ) -> None:
        super().__init__()
        self.data, self.validation, self.steps_per_epoch = data, validation, steps_per_epoch
        self._validation_steps = validation_steps
        count = data.count(steps_per_epoch)
        self.batches = count if steps_per_epoch is None else steps_per_epoch
        self._epochs = range(initial_epoch, epochs)
        passes = range(0) if resumes else first_pass(initial_epoch, count, steps_per_epoch)
        self.first_pass = passes
        self.steps_done = self._in_epoch = self._checked = self._skipped = 0

    @classmethod
    def received(
        cls,
        x: Any,
        y: Any,
        weights: Any,
        network: keras.Model,
        *,
        batch_size: int | None,
        seed: int,
        epochs: int,
        validation_split: float,
        steps_per_epoch: int | None,
        validation_data: Any,
        validation_batch_size: int | None = None,
        validation_steps: int | None = None,
        **more: Any,
    ) -> "Fit":
        """A call with the arguments of `fit`, in the form in which Keras takes them.

        Args:
            x, y, weights, batch_size: As for `FitData.of_fit`.
            network: Its preprocessor is applied, where it keeps one.
            seed: Of the orders of epochs of a task.
            epochs, steps_per_epoch: As for the class.
            validation_split: Share of arrays that is not trained on, without validation data.
            validation_data: Of any form; None for those of a task.
            validation_batch_size, validation_steps: As in Keras.
            **more: As for the class.

        Raises:
            UserError: As for `FitData` and `FitData.split`, or validation data have no end.
        """
        data = FitData.of_fit(
            x, y, weights, batch_size=batch_size, epochs=epochs, seed=seed,
            steps_per_epoch=steps_per_epoch, validation_split=validation_split or None,
        )  # fmt: skip
        held_out = data.validation if validation_data is None else validation_data
        validation = None
        if held_out is not None:
            validation = FitData.of_validation(held_out, validation_batch_size)
            validation.batch_size = validation.batch_size or batch_size
            if validation_steps is None:
                validation.check_ends()
        if prepares(network):
            data = prepared_data(network, data)
            validation = validation and prepared_data(network, validation)
        if validation_split and validation is None:
            data, validation = data.split(validation_split)
            validation.batch_size = validation_batch_size or validation.batch_size
        return cls(
            data, validation, epochs=epochs, steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps, **more,
        )  # fmt: skip

    def arguments(self, alone: bool, shuffle: bool) -> dict[str, Any]:
        """The data as arguments of `keras.Model.fit`.

        Args:
            alone, shuffle: As for `FitData.for_keras`.
        """
        arguments = {
            **self.data.for_keras(alone, shuffle, self.steps_per_epoch),
            "steps_per_epoch": self.steps_per_epoch,
            "initial_epoch": self._epochs.start, "epochs": self._epochs.stop,
        }  # fmt: skip
        if self.validation is None:
            return arguments
        steps = self._validation_steps
        x, *others = self.validation.for_keras(alone, steps=steps).values()
        return arguments | {
            "validation_data": (x, *others[:2]) if others and others[0] is not None else x,
            "validation_steps": steps, "validation_batch_size": self.validation.batch_size,
        }  # fmt: skip

    def choose(self, execution: Execution, callbacks: Sequence[Any]) -> None:
        """Choose how steps run and how many a call takes.

        Args:
            execution: Of the learner.
            callbacks: Of the fit. One with `whole_epoch` takes the rest of an epoch of so many
                batches: calls end where they would have ended in a training that was not stopped,
                because XLA rounds the steps of another program otherwise.
        """
        batches = self.batches
        execution.choose(batches, None if batches is None else batches * len(self._epochs))
        whole = next((c.whole_epoch for c in callbacks if hasattr(c, "whole_epoch")), batches)
        execution.set_per_call(whole, self.steps_per_epoch, callbacks)

    # ---- while it runs ---------------------------------------------------------------------------

    def watch(
        self, progress: Progress, check: Callable[[], None], store: Callable[[bool], None] | None
    ) -> None:
        """Watch over a learner from now on.

        Args:
            progress: Of the learner.
            check: Raises what is wrong by now: a label, ten steps in a row that were skipped, or
                the learning rate.
            store: Says whether memories store, where they store the first pass alone.
        """
        self._progress, self._check, self._store = progress, check, store

    def on_train_begin(self, logs: Any = None) -> None:
        """Check the task, and note how many steps were skipped before.

        Raises:
            UserError: A callback has loaded the state of another task.
        """
        self._progress.check_task()
        self._skipped = int(self._progress.skipped.numpy())

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin the order of the epoch, say whether memories store it, and check the task.

        Raises:
            UserError: A callback has loaded the state of another task, or as for `check`.
        """
        self._progress.check_task()
        self._in_epoch = self._checked = 0
        self._check()
        if self._store is not None:
            self._store(epoch in self.first_pass)
        if self.data.begin_epoch is not None:
            self.data.begin_epoch(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count batches, and check every `CHECK_EVERY` of them.

        Raises:
            UserError: As for `check`.
            LearningFailedError: As for `check`.
        """
        self.steps_done, self._in_epoch = self.steps_done + batch + 1 - self._in_epoch, batch + 1
        if batch + 1 - self._checked >= CHECK_EVERY:
            self._checked = batch + 1
            self._check()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Check.

        Raises:
            UserError: As for `check`.
            LearningFailedError: As for `check`.
        """
        self._check()

    def skipped_warning(self, begins_task: bool) -> str | None:
        """A warning where steps were skipped, else None, once something was learned.

        Args:
            begins_task: Whether the task began with this fit, and steps are known to be finite:
                a loss scale begins with steps that overflow.

        Raises:
            LearningFailedError: All steps of a fit that begins a task were skipped.
        """
        skipped = int(self._progress.skipped.numpy()) - self._skipped
        if begins_task and 0 < self.steps_done <= skipped:
            raise LearningFailedError(
                f"no step of this fit had a finite loss and gradient, {skipped} of {skipped}, and "
                "nothing is learned of its task: look for NaN and infinity in the inputs, or take "
                "a lower rate"
            )
        if not skipped:
            return None
        return (
            f"{skipped} step{'s' * (skipped != 1)} of this fit had no finite loss and gradient "
            "and changed nothing: look for NaN and infinity in the inputs, or take a lower "
            "rate; model.skipped counts them"
        )


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


# ---- callbacks -----------------------------------------------------------------------------------


def listed(callbacks: Any) -> list[Any]:
    """The callbacks of `fit` as a list: None, a callback, several, or a CallbackList."""
    callbacks = getattr(callbacks, "callbacks", callbacks) or []
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


def progress_bar(verbose: Any, logs: str) -> list[keras.callbacks.Callback]:
    """The progress bar, where Keras's own would show more.

    Args:
        verbose: As for `keras.Model.fit`; 0 for no progress bar.
        logs: What it shows, as `Learner.fit` takes it.

    Raises:
        UserError: `logs` is none of `LOGS`.
    """
    checked_name("logs", logs, LOGS)
    return [ShortProgress()] if verbose != 0 and logs == "metrics" else []


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
