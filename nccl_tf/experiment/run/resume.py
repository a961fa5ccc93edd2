"""What a run keeps in its checkpoints, and the callback that takes them."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.callbacks import ForgettingDiagnostics, StepRecord
from nccl_tf.errors import LearningFailedError
from nccl_tf.experiment.run.checkpoints import (
    Checkpoint,
    CheckpointStore,
    assign_arrays,
    translate_misfit,
    variables_to_arrays,
)
from nccl_tf.experiment.run.evaluation import Evaluation
from nccl_tf.experiment.run.signals import Interrupted, InterruptRequest
from nccl_tf.experiment.run.timing import TrainClock
from nccl_tf.learner.checks import SKIPS_IN_A_ROW

_SUMS = "epoch "
CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints in a run's folder."""


def clear_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run that has ended."""
    CheckpointStore(folder / CHECKPOINTS).clear()


def epoch_sums(learner: keras.Model) -> dict[str, keras.Variable]:
    """What metrics have summed since the epoch began; by place, as names count up in a process."""
    if isinstance(learner.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return {}  # To read them takes all workers, and one alone writes checkpoints.
    variables = enumerate(learner.metrics_variables)
    return {f"{_SUMS}{place:04d}": variable for place, variable in variables}


def take_epoch_sums(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Take what `epoch_sums` had out of the arrays of a checkpoint."""
    return {name: arrays.pop(name) for name in [*arrays] if name.startswith(_SUMS)}


class RestOfEpoch(keras.callbacks.Callback):
    """Lets metrics go on with what they had summed, where the rest of an epoch begins.

    Args:
        sums: What `take_epoch_sums` returned.
        batches: The rest of the epoch.
    """

    def __init__(self, sums: Mapping[str, np.ndarray], batches: tf.data.Dataset):
        super().__init__()
        self._sums, self._batches = sums, batches

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """After Keras has set the metrics to zero."""
        if not self._sums:
            return
        if epoch_sums(self.model).keys() != self._sums.keys():
            # Compiled metrics make their variables for the first batch that they see.
            inputs, labels, weights = next(iter(self._batches))
            self.model.compute_metrics(None, labels, self.model(inputs, training=False), weights)
        assign_arrays(epoch_sums(self.model), self._sums)
        self._sums = {}


class RunState:
    """The whole state of a run: put together for a checkpoint, and put back from one.

    Args:
        learner: With its step log, so that every variable exists.
        evaluation: The accuracy matrix so far.
        clock: The times so far.
        steps_csv: The rows so far.
        store: Where checkpoints go.
        identity: The run's "settings_hash" and "seed"; a checkpoint of another run is refused.
        diagnostics: What they have measured so far; None where there are none.
        is_chief: Whether this process, and no other worker, writes the results and the checkpoints.
    """

    def __init__(
        self,
        learner: keras.Model,
        evaluation: Evaluation,
        clock: TrainClock,
        steps_csv: StepRecord,
        store: CheckpointStore,
        identity: Mapping[str, Any],
        diagnostics: ForgettingDiagnostics | None = None,
        is_chief: bool = True,
    ):
        self.learner, self.evaluation, self.clock = learner, evaluation, clock
        self.steps_csv, self.store, self.identity = steps_csv, store, dict(identity)
        self.diagnostics, self.is_chief = diagnostics, is_chief
        self.task = 0
        self.steps_before_task = 0
        self._sums: dict[str, np.ndarray] = {}

    @property
    def steps_in_task(self) -> int:
        """Steps of the current task that are done."""
        return int(self.learner.step_log.steps.numpy()) - self.steps_before_task

    def task_done(self) -> None:
        """Move on to the next task, and take a checkpoint."""
        self.steps_before_task += self.steps_in_task
        self.task += 1
        self.save()

    def save(self) -> None:
        """Write a checkpoint, unless another worker does.

        Raises:
            UserError: It cannot be written; the one before stays good.
        """
        if not self.is_chief:
            return
        meta = {
            **self.identity,
            "task": self.task,
            "steps_before_task": self.steps_before_task,
            "evaluation": self.evaluation.state(),
            "clock": self.clock.state(),
            "steps_csv": self.steps_csv.state(),
            "step_log": self.learner.step_log.state(),
            "diagnostics": None if self.diagnostics is None else self.diagnostics.state(),
        }
        arrays = variables_to_arrays({**self._variables(), **epoch_sums(self.learner)})
        self.store.save(Checkpoint(arrays, meta))

    def interrupted(self, signum: int) -> Interrupted:
        """The end of the run by a signal."""
        return Interrupted(signum)

    def restore(self) -> bool:
        """Put the last good checkpoint back.

        Returns:
            Whether there was one.

        Raises:
            UserError: The checkpoint is of another run or program, or steps.csv does not fit it.
        """
        checkpoint = self.store.last()
        if checkpoint is None:
            return False
        meta = checkpoint.meta
        what = f"the checkpoints in {self.store.folder} do not fit this run"
        with translate_misfit(what, "start again with --overwrite"):
            for name, value in self.identity.items():
                if meta[name] != value:
                    raise ValueError(f"their {name} is {meta[name]}, the run's {value}")
            if (meta["diagnostics"] is None) != (self.diagnostics is None):
                raise ValueError("--diagnostics differs")
            self._sums = take_epoch_sums(checkpoint.arrays)
            assign_arrays(self._variables(), checkpoint.arrays)
            self.learner.step_log.restore(meta["step_log"])
            self.task = meta["task"]
            self.steps_before_task = meta["steps_before_task"]
            self.evaluation.restore(meta["evaluation"])
            self.clock.restore(meta["clock"])
            if self.is_chief:
                self.steps_csv.restore(meta["steps_csv"])
            if self.diagnostics is not None:
                self.diagnostics.restore(meta["diagnostics"])
        return True

    def rest_of_task(self, batches: tf.data.Dataset) -> keras.callbacks.Callback:
        """For the `fit` that goes on within the task that was restored."""
        return RestOfEpoch(self._sums, batches)

    def _variables(self) -> dict[str, keras.Variable]:
        more = {} if self.diagnostics is None else self.diagnostics.variables()
        return {**self.learner.state_variables(), **more}


class Checkpointing(keras.callbacks.Callback):
    """Takes a checkpoint every so often, and where the run has to stop.

    Args:
        state: The state of the run.
        every_seconds: Time between checkpoints inside a task.
        request: Tells of signals.
    """

    def __init__(self, state: RunState, every_seconds: float, request: InterruptRequest):
        super().__init__()
        self._state, self._every, self._request = state, every_seconds, request
        self._last = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """After a call of the graph: a checkpoint if it is time, and an end if one is due.

        Raises:
            LearningFailedError: Ten steps in a row were not finite.
            Interrupted: A signal came.
        """
        failed = int(self.model.skipped_in_a_row.numpy()) >= SKIPS_IN_A_ROW
        if failed or time.monotonic() - self._last >= self._every:
            self._state.save()
            self._last = time.monotonic()
        if failed:
            raise LearningFailedError
        self.save_if_asked()

    def save_if_asked(self) -> None:
        """Stop with a checkpoint where a signal came.

        Raises:
            Interrupted: It did.
        """
        # Read once: a signal that comes after this is for the next call, with a checkpoint too.
        signum = self._request.signum
        if signum is not None:
            self._state.save()
            raise self._state.interrupted(signum)

    def raise_if_asked(self) -> None:
        """Stop where a signal came.

        Raises:
            Interrupted: It did.
        """
        if self._request.signum is not None:
            raise self._state.interrupted(self._request.signum)
