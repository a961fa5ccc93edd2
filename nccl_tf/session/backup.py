"""Backups of a call of `learn`, so that the same call goes on where it was killed."""

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import keras
import numpy as np

from nccl_tf.callbacks import StepRecord
from nccl_tf.errors import UserError, translate_os_error
from nccl_tf.experiment.run.checkpoints import (
    Checkpoint,
    CheckpointStore,
    assign_arrays,
    translate_misfit,
    variables_to_arrays,
)
from nccl_tf.experiment.run.evaluation import Evaluation
from nccl_tf.experiment.run.files import lock_folder, remove_left_over
from nccl_tf.experiment.run.resume import RestOfEpoch, epoch_sums, take_epoch_sums
from nccl_tf.learner.step_log import StepLog

_FREE = ("optimizer", "run_eagerly", "steps_per_execution")
"""Of `compile`: the optimizer is looked at by itself, and the others change no bit."""
_COUNT = re.compile(r"_\d+$")
_OF_LAYERS = ("keras_history", "input_layers", "output_layers")
"""Where a configuration of Keras names layers."""
_KEEP_NOTHING = (
    keras.callbacks.CSVLogger, keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard,
    keras.callbacks.TerminateOnNaN,
)  # fmt: skip
"""Callbacks of Keras that training does not depend on: they have no state that it needs, and change
nothing where the rest of an epoch begins, as LearningRateScheduler does, which acts once more."""
_FIRST_SETTINGS: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""Of each optimizer, before a call of `learn` in which callbacks may have changed its rate."""


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


class Backup:
    """The whole state of a call of `learn`, in checkpoints in a folder.

    Args:
        folder: Made where it is missing.
        every: Seconds between two backups within a task.
        model: The learner.
        evaluation: The matrix so far.
        callbacks: The user's; those with `state()` and `restore(state)` go on too.
        fingerprint: Of the call; a backup of another call is refused.
    """

    def __init__(
        self,
        folder: Path,
        every: float,
        model: keras.Model,
        evaluation: Evaluation,
        callbacks: Sequence[Any],
        fingerprint: str,
    ):
        self.every = every
        self._folder, self._store = folder, CheckpointStore(folder)
        self._model, self._evaluation, self._fingerprint = model, evaluation, fingerprint
        self._stateful = [c for c in callbacks if hasattr(c, "state") and hasattr(c, "restore")]
        others = [c for c in callbacks if c not in self._stateful]
        self._sums: dict[str, np.ndarray] = {}
        self._may_split_tasks = all(isinstance(c, _KEEP_NOTHING) for c in others)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder while the body runs.

        Raises:
            UserError: Another process runs in it, or it cannot be written.
        """
        with translate_os_error(f"into {self._folder}", "choose another backup_dir"):
            self._folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock_folder(self._folder))
            except UserError as error:
                raise UserError(
                    f"another process holds the backup in {self._folder}: wait for it or stop it, "
                    "or choose another backup_dir"
                ) from error
            remove_left_over(self._folder)
            yield

    def save(self, place: Place) -> None:
        """Write the state at a place.

        Raises:
            UserError: It cannot be written; the backup before stays good.
        """
        meta = {
            "fingerprint": self._fingerprint,
            "place": place,
            "evaluation": self._evaluation.state(),
            "callbacks": [callback.state() for callback in self._stateful],
            "step_log": None if self._log is None else self._log.state(),
        }
        arrays = variables_to_arrays({**self._variables(), **epoch_sums(self._model)})
        self._store.save(Checkpoint(arrays, meta))

    def restore(self) -> Place | None:
        """Put the last good backup back; None where there is none.

        Raises:
            UserError: The backup is of another call.
        """
        for callback in self._stateful:
            if isinstance(callback, StepRecord):
                self._model.record_steps(callback.every)
            callback.set_model(self._model)
        checkpoint = self._store.last()
        if checkpoint is None:
            return None
        meta = checkpoint.meta
        what = f"the backup in {self._folder} does not fit this call"
        advice = "call learn with the same model, stream and arguments, or give another backup_dir"
        with translate_misfit(what, advice):
            if meta["fingerprint"] != self._fingerprint:
                raise ValueError("it is of another model, stream or setting")
            if len(meta["callbacks"]) != len(self._stateful):
                raise ValueError("it was taken with other callbacks")
            self._sums = take_epoch_sums(checkpoint.arrays)
            assign_arrays(self._variables(), checkpoint.arrays)
            self._evaluation.restore(meta["evaluation"])
            if self._log is not None:
                self._log.restore(meta["step_log"])
            for callback, state in zip(self._stateful, meta["callbacks"], strict=True):
                callback.restore(state)
            return Place(*meta["place"])

    def within_task(self, place: Place, steps: int) -> list[keras.callbacks.Callback]:
        """What takes backups while a task of so many steps an epoch goes on from `place`."""
        return [_WithinTask(self, place, steps)] if self._may_split_tasks else []

    def rest_of_epoch(self, batches: Any) -> keras.callbacks.Callback:
        """For the training on what is left of the epoch of the place that was restored."""
        return RestOfEpoch(self._sums, batches)

    @property
    def _log(self) -> StepLog | None:
        return getattr(self._model, "step_log", None)

    def _variables(self) -> dict[str, keras.Variable]:
        """By place: Keras counts up the names of its parts in a process."""
        variables = [*self._model.state_variables().values()]
        for callback in self._stateful:
            if hasattr(callback, "variables"):
                variables += callback.variables().values()
        return {f"{place:04d}": variable for place, variable in enumerate(variables)}


class _WithinTask(keras.callbacks.Callback):
    def __init__(self, backup: Backup, place: Place, steps: int):
        super().__init__()
        self._backup, self._place, self._begun, self._steps = backup, place, place, steps
        self._last = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        first = self._begun.step if epoch == self._begun.epoch else 0
        self._place = self._begun._replace(epoch=epoch, step=first)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        step = self._place.step + batch + 1
        # No backup knows that a callback has stopped the training.
        if step < self._steps and not self.model.stop_training:
            self._save_if_due(self._place._replace(step=step))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # What callbacks do at the end of an epoch is in its backup. Where training ends, by its
        # last epoch or by one of them, they have more to do: the next one is that of the task.
        if epoch + 1 < self.params["epochs"] and not self.model.stop_training:
            self._save_if_due(self._place._replace(epoch=epoch + 1, step=0))

    def _save_if_due(self, place: Place) -> None:
        if time.monotonic() - self._last >= self._backup.every:
            self._backup.save(place)
            self._last = time.monotonic()


def fingerprint(model: keras.Model, tasks: Sequence[Any], settings: dict[str, Any]) -> str:
    """A hash of what decides the result of a call, but for first weights, callbacks and code.

    Args:
        model: Its class, hyperparameters, network, optimizer, loss and metrics.
        tasks: Their numbers, classes and examples, which are read once.
        settings: Further values.
    """
    compiled = {n: v for n, v in model.get_compile_config().items() if n not in _FREE}
    compiled["loss"] = describe(compiled["loss"])
    seen = [type(model).__name__, model.get_config(), _first_settings(model.optimizer)]
    seen += [compiled, settings, [[task.task_id, task.classes] for task in tasks]]
    text = json.dumps(_uncounted(seen, {}), default=_as_json, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    for task in tasks:
        for examples in filter(None, (task.train, task.test, task.validation)):
            inputs = examples.inputs if isinstance(examples.inputs, dict) else {"": examples.inputs}
            for name, column in [*sorted(inputs.items()), ("", examples.labels)]:
                digest.update(json.dumps([name, _as_json(column)]).encode())
    return digest.hexdigest()


def _as_json(value: Any) -> Any:
    """An array by its form and the hash of all of it; another value by its text."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return str(value)
    if value.dtype == object:
        content: Any = repr(value.tolist()).encode()
    else:
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return [str(value.dtype), value.shape, hashlib.sha256(content).hexdigest()]


def describe(part: Any) -> Any:
    """A loss or a metric as values that are the same in every process: its settings, or its name.

    Args:
        part: A Keras object, or what `get_compile_config` makes of one, a function, or a name.
    """
    if hasattr(part, "get_config"):
        return [type(part).__name__, part.get_config()]
    if callable(part):
        return [part.__module__, part.__qualname__]
    return part


def _first_settings(optimizer: Any) -> dict[str, Any]:
    """What an optimizer was made with, also where a call that was interrupted changed its rate."""
    if optimizer not in _FIRST_SETTINGS or not int(optimizer.iterations):
        _FIRST_SETTINGS[optimizer] = optimizer.get_config()
    return _FIRST_SETTINGS[optimizer]


def _uncounted(value: Any, places: dict[str, int], refers: bool = False) -> Any:
    """A configuration without the numbers in names, which Keras counts up in a process.

    Args:
        value: The configuration.
        places: The names so far with their place, by which layers name those that they follow.
        refers: Whether texts are names of layers.
    """
    if isinstance(value, dict):
        if "name" in value:
            places.setdefault(str(value["name"]), len(places))
        parts = {n: _uncounted(v, places, refers or n in _OF_LAYERS) for n, v in value.items()}
        return parts | {n: _COUNT.sub("", str(value[n])) for n in ("name",) if n in value}
    if isinstance(value, (list, tuple)):
        return [_uncounted(part, places, refers) for part in value]
    return places.get(value, value) if refers and isinstance(value, str) else value
