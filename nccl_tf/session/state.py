"""The state that a session saves in its checkpoints, and how it is restored."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.callbacks import StepRecord
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.options.step_log import StepLog
from nccl_tf.records.checkpoints import (
    Checkpoint,
    CheckpointStore,
    arrays_sha256,
    assign_arrays,
    state_sha256,
    translate_misfit,
    variables_to_arrays,
)
from nccl_tf.records.provenance import variables_that_decide_bits
from nccl_tf.session.evaluation import Evaluation
from nccl_tf.session.run import learned_before

LOGGER = logging.getLogger("nccl_tf")
_SUMS = "epoch "
_XLA, _ENVIRONMENT = "jit_compile", "environment"


class Place(NamedTuple):
    """How far a stream is learned.

    Attributes:
        task: Number of finished tasks.
        epoch: Number of finished epochs of the next task.
        step: Number of finished batches of its next epoch.
    """

    task: int = 0
    epoch: int = 0
    step: int = 0


class SessionCallback(keras.callbacks.Callback):
    """A callback that is told of tasks as well, and that training does not depend on.

    One with `state()` (JSON values) and `restore(state)` is kept in the checkpoints.
    """

    def on_resume(self, place: Place) -> None:
        """A checkpoint was put back, and the session resumes from `place`."""

    def before_task(self, place: Place) -> None:
        """The task of this place begins, or resumes."""

    def after_training(self) -> None:
        """The task has ended for the learner; its evaluation follows."""

    def after_task(self, row: int) -> None:
        """Row `row` of the matrix is filled."""


_KEEP_NOTHING = (
    SessionCallback, keras.callbacks.CSVLogger, keras.callbacks.ModelCheckpoint,
    keras.callbacks.TensorBoard, keras.callbacks.TerminateOnNaN,
)  # fmt: skip
"""Callbacks that training does not depend on: they have no state that it needs, and change nothing
where the rest of an epoch begins, as LearningRateScheduler does, which acts once more."""


def _keeps_nothing(callback: keras.callbacks.Callback) -> bool:
    # A `ModelCheckpoint` of the best would not know it, and write a worse one over it.
    return isinstance(callback, _KEEP_NOTHING) and not getattr(callback, "save_best_only", False)


class SessionState:
    """The state of a session: put together for a checkpoint, and put back from one.

    Args:
        store: Where checkpoints go.
        identity: What the session is of, by name, as JSON values; a checkpoint of another one is
            refused.
        model: The learner.
        evaluation: The matrix so far.
        callbacks: Those with `state()` and `restore(state)` are kept, with their `variables()`
            where they have any.
        advice: What to do where a checkpoint does not fit, for the message.
        identity_has_weights: Whether the identity says what the learner's state is at first, its
            weights too. Where it does not, a checkpoint of a session that began with another state
            is told of, and refused if that session has ended.
    """

    def __init__(
        self,
        store: CheckpointStore,
        identity: Mapping[str, Any],
        model: Learner,
        evaluation: Evaluation,
        callbacks: Sequence[keras.callbacks.Callback],
        advice: str,
        identity_has_weights: bool = True,
    ):
        self._store, self._identity, self._advice = store, dict(identity), advice
        self._model, self._evaluation = model, evaluation
        self._stateful = [c for c in callbacks if hasattr(c, "state") and hasattr(c, "restore")]
        others = [c for c in callbacks if c not in self._stateful]
        self._sums: dict[str, np.ndarray] = {}
        self._found: Checkpoint | None = None
        self._first = None if identity_has_weights else state_sha256(self._learned())
        self.earlier = learned_before(model)
        """Steps and tasks of the learner before the session, or before that of a checkpoint."""
        self.may_split_tasks = all(map(_keeps_nothing, others))
        """Whether a checkpoint within a task holds all that the callbacks depend on."""

    def save(self, place: Place) -> None:
        """Write the state at a place.

        Raises:
            UserError: It cannot be written; the checkpoint before stays good.
        """
        meta = {
            "identity": self._whose(),
            "place": place,
            "first_state": self._first,
            "earlier": self.earlier,
            "evaluation": self._evaluation.state(),
            "callbacks": [callback.state() for callback in self._stateful],
            "step_log": None if self._log is None else self._log.state(),
        }
        # Another thread that predicts by averaged weights has them in the network meanwhile.
        with self._model.execution.turns.take(alone=True):
            arrays = variables_to_arrays({**self._variables(), **self._epoch_sums()})
        self._store.save(Checkpoint(arrays, meta))

    def steps_per_program(self) -> int | None:
        """That of the learner whose checkpoint `restore` puts back; None where there is none."""
        self._found = self._store.last()
        return None if self._found is None else self._found.meta["identity"].get(_XLA)

    def restore(self, parts: int) -> Place | None:
        """Put the last good checkpoint back; None where there is none.

        Args:
            parts: Number of parts of the session, which has ended at this place.

        Raises:
            UserError: The checkpoint is of another session or program, or a file that a callback
                writes does not fit it.
        """
        # Their variables are a part of the state, and one may continue without another `fit`.
        for callback in self._stateful:
            if isinstance(callback, StepRecord):
                self._model.record_steps(callback.every)
            callback.set_model(self._model)
        checkpoint, self._found = self._found or self._store.last(), None
        if checkpoint is None:
            return None
        meta = checkpoint.meta
        with self._misfit_told():
            place = Place(*meta["place"])
            if not all(type(number) is int and number >= 0 for number in place):
                raise ValueError(f"their place is {tuple(place)}")
            ours, theirs = self._whose(), meta["identity"]
            for name in {**theirs, **ours}:
                there, here = theirs.get(name), ours.get(name)
                if there != here:
                    shown = name in (_XLA, _ENVIRONMENT)
                    both = f" ({_words(there)} there, {_words(here)} here)" if shown else ""
                    raise ValueError(f"they are of another {name}{both}")
            if len(meta["callbacks"]) != len(self._stateful):
                raise ValueError("they were taken with other callbacks")
            self._sums = _take_epoch_sums(checkpoint.arrays)
            if self._first is not None:
                self._check_first(meta, checkpoint.arrays, parts)
            with self._model.execution.turns.take(alone=True):
                assign_arrays(self._variables(), checkpoint.arrays)
            self.earlier = meta["earlier"]
            self._evaluation.restore(meta["evaluation"])
            if self._log is not None:
                self._log.restore(meta["step_log"])
            for callback, state in zip(self._stateful, meta["callbacks"], strict=True):
                callback.restore(state)
            return place

    def rest_of_epoch(self, batches: tf.data.Dataset, whole: int) -> keras.callbacks.Callback:
        """The callback for training the rest of the restored epoch, of `whole` batches."""
        return _RestOfEpoch(self._epoch_sums, self._sums, batches, whole, self._misfit_told)

    def _misfit_told(self) -> AbstractContextManager[None]:
        """Translates whatever the body raises because a checkpoint does not fit."""
        what = f"the checkpoints in {self._store.folder} do not fit this call"
        return translate_misfit(what, self._advice)

    def _epoch_sums(self) -> dict[str, keras.Variable]:
        """Sums of the metrics in this epoch, by position, because names count up in a process."""
        if isinstance(self._model.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return {}  # To read them takes all workers, and one alone writes checkpoints.
        return {f"{_SUMS}{place:04d}": v for place, v in enumerate(self._model.metrics_variables)}

    def _whose(self) -> dict[str, Any]:
        """The identity of the session. Under XLA rounding depends on the steps of a program."""
        variables = variables_that_decide_bits()
        environment = {_ENVIRONMENT: variables} if variables else {}
        return {**self._identity, _XLA: self._model.execution.per_program, **environment}

    def _check_first(
        self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], parts: int
    ) -> None:
        """Compare the learner's state with that which the session began with.

        Raises:
            ValueError: It is another one, and no more of the session is left to learn.
        """
        learned = self._learned()
        there = arrays_sha256({name: arrays[name] for name in learned if name in arrays})
        if self._first not in (meta["first_state"], there):
            if Place(*meta["place"]).task >= parts:
                raise ValueError(
                    "they are of a call that has ended, and that began with other weights or "
                    "another memory than this one"
                )
            LOGGER.warning(
                "the checkpoints in %s began with other weights or another memory than this call, "
                "which goes on with theirs: give another backup_dir to begin with its own",
                self._store.folder,
            )
        self._first = meta["first_state"]

    def _learned(self) -> dict[str, keras.Variable]:
        """The learner's own variables."""
        return _by_place(self._model.state_variables.values())

    @property
    def _log(self) -> StepLog | None:
        return self._model.option(StepLog)

    def _variables(self) -> dict[str, keras.Variable]:
        variables = [*self._model.state_variables.values()]
        for callback in self._stateful:
            if hasattr(callback, "variables"):
                variables += callback.variables().values()
        return _by_place(variables)


def _words(steps: int | Mapping[str, str] | None) -> str:
    """How steps run, as `compile` and the command take it; or variables, as a shell sets them."""
    if isinstance(steps, Mapping):
        return " ".join(f"{name}={value}" for name, value in steps.items())
    if steps is None:
        return "none"
    return f"true, steps_per_execution={steps}" if steps else "false"


class Checkpoints(keras.callbacks.Callback):
    """Takes checkpoints within a task, every so often and where the session has to stop.

    Args:
        state: The state of the session.
        begun: The place that the task begins or resumes from.
        steps: Batches in an epoch.
        every: Seconds between two checkpoints.
        interruption: Returns what is raised to stop the session, or None.
        clock: Returns seconds from any origin.
    """

    def __init__(
        self,
        state: SessionState,
        begun: Place,
        steps: int,
        every: float,
        interruption: Callable[[], BaseException | None],
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        self._state, self._place, self._begun, self._steps = state, begun, begun, steps
        self._every, self._interruption, self._clock = every, interruption, clock
        self._last = clock()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note where the epoch begins."""
        first = self._begun.step if epoch == self._begun.epoch else 0
        self._place = self._begun._replace(epoch=epoch, step=first)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Save within an epoch, and stop where it is asked for."""
        step = self._place.step + batch + 1
        # No checkpoint knows that a callback has stopped the training.
        if step < self._steps and not self.model.stop_training:
            self._save_if_due(self._place._replace(step=step))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save between two epochs, and stop where it is asked for."""
        # What callbacks do at the end of an epoch is in its checkpoint. Where training ends, by
        # its last epoch or by one of them, they have more to do: the next one is that of the task.
        if epoch + 1 < self.params["epochs"] and not self.model.stop_training:
            self._save_if_due(self._place._replace(epoch=epoch + 1, step=0))

    def _save_if_due(self, place: Place) -> None:
        # Read once: a signal that comes after this is for the next call, with a checkpoint too.
        interruption = self._interruption()
        if interruption is not None or self._clock() - self._last >= self._every:
            self._state.save(place)
            self._last = self._clock()
        if interruption is not None:
            raise interruption


def _by_place(variables: Iterable[keras.Variable]) -> dict[str, keras.Variable]:
    """Variables by their place: Keras counts up the names of its parts in a process."""
    return {f"{place:04d}": variable for place, variable in enumerate(variables)}


def _take_epoch_sums(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Pop the arrays of `SessionState._epoch_sums` from those of a checkpoint."""
    return {name: arrays.pop(name) for name in [*arrays] if name.startswith(_SUMS)}


class _RestOfEpoch(keras.callbacks.Callback):
    """Restores the sums of the metrics when the rest of an epoch starts."""

    def __init__(
        self,
        variables: Callable[[], dict[str, keras.Variable]],
        sums: Mapping[str, np.ndarray],
        batches: tf.data.Dataset,
        whole: int,
        misfit_told: Callable[[], AbstractContextManager[None]],
    ):
        super().__init__()
        self._variables, self._sums, self._batches = variables, sums, batches
        self._misfit_told = misfit_told
        self.whole_epoch = whole
        """Read by `fit`, whose calls of the graph are those of the whole epoch."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """After Keras has set the metrics to zero."""
        if not self._sums:
            return
        if self._variables().keys() != self._sums.keys():
            # Compiled metrics make their variables for the first batch that they see.
            inputs, labels, weights = next(iter(self._batches))
            self.model.compute_metrics(None, labels, self.model(inputs, training=False), weights)
        with self._misfit_told():
            assign_arrays(self._variables(), self._sums)
        self._sums = {}
