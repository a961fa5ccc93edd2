"""One seed of an experiment: train task by task, evaluate, and return the record."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.evaluated import ALL
from nccl_tf.callbacks import ForgettingDiagnostics, StepRecord
from nccl_tf.errors import translate_os_error
from nccl_tf.experiment.config.options import Options
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.experiment.run.build import (
    build_learner,
    build_stream,
    task_learning_rates,
    training_parts,
)
from nccl_tf.experiment.run.checkpoints import CheckpointStore
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.devices import count_threads
from nccl_tf.experiment.run.distribution import (
    check_agreement,
    check_batches,
    make_strategy,
    strategy_scope,
)
from nccl_tf.experiment.run.evaluation import Evaluation
from nccl_tf.experiment.run.files import remove_left_over
from nccl_tf.experiment.run.memory_check import check_fits
from nccl_tf.experiment.run.new_record import make_record
from nccl_tf.experiment.run.progress import Progress
from nccl_tf.experiment.run.provenance import run_statistics
from nccl_tf.experiment.run.record import FILE_NAME, MODEL_NAME
from nccl_tf.experiment.run.resume import (
    CHECKPOINTS,
    Checkpointing,
    RunState,
)
from nccl_tf.experiment.run.signals import InterruptRequest
from nccl_tf.experiment.run.tensorboard import TensorBoardLog, events_folder
from nccl_tf.experiment.run.timing import TrainClock
from nccl_tf.learner.checks import check_saves
from nccl_tf.methods.registry import get_method
from nccl_tf.streams import Stream


def run_seed(
    settings: Settings,
    options: Options,
    seed: int,
    folder: Path,
    request: InterruptRequest,
    console: Console | None = None,
    chief_dir: Path | None = None,
) -> dict[str, Any]:
    """Train and evaluate one seed, going on from its last checkpoint where there is one.

    Row i of the accuracy matrix holds the tasks up to i, which are trained, and the next one, for
    forward transfer, or those of them that `evaluate` asks for. A method that learns all tasks at
    once fills the last row alone.

    Args:
        settings: What is run.
        options: Where data are read, and what is written beside the record.
        seed: Seed of stream, weights and draws.
        folder: The run's folder, which exists; takes checkpoints, steps.csv and TensorBoard
            events. A result.json of an earlier run goes when training begins.
        request: Tells of signals; the run stops where one came.
        console: Takes the progress; None for nobody.
        chief_dir: On a worker that is not the first one (the chief), the chief's folder, whose
            checkpoints are read; nothing is written there.

    Returns:
        The record, as `record.write_record` takes it.

    Raises:
        UserError: Data are missing or broken, the schedule's rates are impossible, the machine
            has too little memory, or a file cannot be written.
        Interrupted: A signal came; a checkpoint is written.
        LearningFailedError: Ten steps in a row were not finite; a checkpoint is written.
    """
    run = _SeedRun(settings, options, seed, folder, console or Console("none"), chief_dir)
    run.restore_or_begin()
    checkpointing = Checkpointing(run.state, options.checkpoint_every, request)
    while run.state.task < len(run.parts):
        run.train_task(checkpointing)
    if options.save_model and chief_dir is None:
        run.learner.save(folder / MODEL_NAME)
    return run.make_record()


class _SeedRun:
    """A seed's stream, learner and what watches it; the arguments are those of `run_seed`."""

    def __init__(
        self,
        settings: Settings,
        options: Options,
        seed: int,
        folder: Path,
        console: Console,
        chief_dir: Path | None,
    ):
        self.settings, self.seed, self.folder, self.chief_dir = settings, seed, folder, chief_dir
        self.strategy = make_strategy(settings.distribute)
        check_batches(settings, self.strategy)
        if settings.deterministic:
            keras.utils.set_random_seed(seed)
            tf.config.experimental.enable_op_determinism()
        self.stream = build_stream(settings, options, seed)
        self.parts = training_parts(settings, self.stream)
        most = max(part.num_train for part in self.parts)
        check_fits(settings, self.stream, most)
        self.steps = [part.steps(settings.batch_size, settings.epochs) for part in self.parts]
        self.rates = task_learning_rates(settings, self.steps)
        with strategy_scope(self.strategy):
            self.learner = build_learner(
                settings, self.stream, seed, options.steps_per_execution,
                learning_rate=self.rates[0],
            )  # fmt: skip
        self.window = options.record_every or max(1, min(50, sum(self.steps) // 200))
        self.options = dataclasses.replace(
            options,
            record_every=self.window,
            steps_per_execution=self.learner.most_steps_per_call(),
            threads=count_threads(),
            workers=options.workers or 1,
        )
        if options.save_model:
            check_saves(self.learner)
        self.learner.record_steps(self.window)
        with translate_os_error(folder / FILE_NAME, "remove it, or choose another --output_dir"):
            (folder / FILE_NAME).unlink(missing_ok=True)
        self._make_observers(console)

    def _make_observers(self, console: Console) -> None:
        """Make the parts that measure the run, report it and keep its state."""
        settings, learner, folder = self.settings, self.learner, self.folder
        self.clock = TrainClock()
        self.steps_csv = StepRecord(folder / "steps.csv", every=self.window)
        # A run that was stopped after its last step finishes without another `fit`.
        self.steps_csv.set_model(learner)
        self.evaluation = Evaluation(learner, self.stream, evaluate=settings.evaluate or ALL)
        store = CheckpointStore((self.chief_dir or folder) / CHECKPOINTS)
        if self.chief_dir is None:
            remove_left_over(store.folder)
            if self.options.overwrite:
                store.clear()
        events = events_folder(folder / "tensorboard", goes_on=not store.is_empty)
        self.diagnostics = _diagnostics(settings, self.options, self.stream, self.seed, events)
        if self.diagnostics is not None:
            self.diagnostics.set_model(learner)
        self.state = RunState(
            learner, self.evaluation, self.clock, self.steps_csv, store,
            {"settings_hash": settings.digest(), "seed": self.seed},
            self.diagnostics, self.chief_dir is None,
        )  # fmt: skip
        joint = get_method(settings.method).joint
        self.tensorboard = TensorBoardLog(events) if self.options.tensorboard else None
        self.progress = Progress(self.steps, console, joint=joint)

    def restore_or_begin(self) -> None:
        """Go on from the last checkpoint or, where there is none, evaluate the first weights."""
        begins_again = self.chief_dir is not None and self.options.overwrite
        restored = not begins_again and self.state.restore()
        steps_done = int(self.learner.step_log.steps.numpy())
        check_agreement(self.strategy, self.settings.digest(), steps_done)
        if restored:
            self.progress.resume(self.state.task, self.state.steps_in_task)
        else:
            self.evaluation.evaluate_initial()

    def train_task(self, checkpointing: Checkpointing) -> None:
        """Train what is left of the task at hand, evaluate, and write a checkpoint.

        Args:
            checkpointing: Also stops the run where a signal came.
        """
        i, done = self.state.task, self.state.steps_in_task
        changes = i > 0 and self.rates[i] != self.rates[i - 1]
        if changes and not bool(self.learner.task_is_open.numpy()):
            self.learner.optimizer.learning_rate = self.rates[i]
        train_before, apart_before = self.clock.train_seconds, self._diagnostics_seconds()
        self.clock.start()
        if done < self.steps[i]:
            # A task of fewer steps has a value too: that of its end.
            every = min(self.window, self.steps[i] - done)
            log = self.tensorboard and self.tensorboard.callback(i, every)
            watching = [self.clock, self.progress, self.steps_csv]
            watching += [log, checkpointing] if log else [checkpointing]
            self._fit(i, done, watching)
        self.learner.end_task()
        self.clock.stop(self._diagnostics_seconds() - apart_before)
        # A joint method has learned every task when its one part ends: its row is the last.
        row = len(self.stream) - len(self.parts) + i
        self.evaluation.evaluate_after(row, checkpointing.save_if_asked)
        if self.tensorboard is not None:
            self.tensorboard.write_row(self.evaluation.matrix, row)
        self.progress.report_task(
            self.evaluation.mean_so_far(row),
            float(self.evaluation.matrix[row, row]),
            self.steps[i] - done,
            self.clock.train_seconds - train_before,
        )
        self.state.task_done()
        checkpointing.raise_if_asked()

    def _fit(self, i: int, done: int, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        batches = self.parts[i].train_batches(
            self.settings.batch_size, seed=self.seed, passes=self.settings.epochs, skip=done
        )
        if done:
            callbacks = [self.state.rest_of_task(batches), *callbacks]
        self.learner.fit(
            batches,
            task_id=self.parts[i].task_id,
            end_task=False,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        )

    def _diagnostics_seconds(self) -> float:
        return self.diagnostics.seconds if self.diagnostics else 0.0

    def make_record(self) -> dict[str, Any]:
        """The record of the run, which has ended."""
        self.steps_csv.finish()
        return make_record(
            self.settings,
            self.options,
            self.seed,
            matrix=self.evaluation.matrix,
            averaged=self.evaluation.averaged,
            initial=np.array(self.evaluation.initial),
            measured={
                **run_statistics(self.learner, self.rates, self.steps),
                "train_seconds": self.clock.train_seconds,
                "compile_seconds": self.clock.compile_seconds,
                "eval_seconds": self.evaluation.seconds,
                **({"diagnostics": self.diagnostics.record()} if self.diagnostics else {}),
            },
        )


def _diagnostics(
    settings: Settings, options: Options, stream: Stream, seed: int, events: Path
) -> ForgettingDiagnostics | None:
    if options.diagnostics == "off":
        return None
    return ForgettingDiagnostics(
        list(stream), options.diagnostics, batch_size=settings.batch_size, seed=seed,
        log_dir=events / "diagnostics" if options.tensorboard else None,
    )  # fmt: skip
