"""One seed of an experiment: train task by task, evaluate, and return the record."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.callbacks import ForgettingDiagnostics, StepRecord
from nccl_tf.experiment.config.options import Options
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.experiment.run.build import (
    build_learner,
    build_stream,
    training_parts,
)
from nccl_tf.experiment.run.checkpoints import CheckpointStore
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.distribution import (
    check_agreement,
    check_batches,
    make_strategy,
    scope,
)
from nccl_tf.experiment.run.evaluation import Evaluation
from nccl_tf.experiment.run.memory_check import check_fits
from nccl_tf.experiment.run.progress import Progress
from nccl_tf.experiment.run.provenance import measured_of
from nccl_tf.experiment.run.record import FILE_NAME, make_record
from nccl_tf.experiment.run.resume import (
    CHECKPOINTS,
    Checkpointing,
    RunState,
)
from nccl_tf.experiment.run.schedules import task_learning_rates
from nccl_tf.experiment.run.signals import InterruptRequest
from nccl_tf.experiment.run.timing import StepProfile, TrainClock
from nccl_tf.methods.registry import get_method
from nccl_tf.streams import Stream


def run_seed(
    settings: Settings,
    options: Options,
    seed: int,
    folder: Path,
    request: InterruptRequest,
    console: Console | None = None,
    follows: Path | None = None,
) -> dict[str, Any]:
    """Train and evaluate one seed, going on from its last checkpoint where there is one.

    Row i of the accuracy matrix holds the tasks up to i, which are trained, and the next one, for
    forward transfer. A method that learns all tasks at once fills the last row alone.

    Args:
        settings: What is run.
        options: Where data are read, and what is written beside the record.
        seed: Seed of stream, weights and draws.
        folder: The run's folder, which exists; takes checkpoints, steps.csv and TensorBoard
            events. A result.json of an earlier run goes when training begins.
        request: Tells of signals; the run stops where one came.
        console: Takes the progress; None for nobody.
        follows: On a worker that is not the first one, the first one's folder, whose checkpoints
            are read; nothing is written there.

    Returns:
        The record, as `records.write_record` takes it.

    Raises:
        UserError: Data are missing or broken, the schedule's rates are impossible, the machine
            has too little memory, or a file cannot be written.
        Interrupted: A signal came; a checkpoint is written.
        LearningFailedError: Ten steps in a row were not finite; a checkpoint is written.
    """
    strategy = make_strategy(settings.distribute)
    check_batches(settings, strategy)
    if settings.deterministic:
        keras.utils.set_random_seed(seed)
        tf.config.experimental.enable_op_determinism()
    stream = build_stream(settings, options, seed)
    parts = training_parts(settings, stream)
    check_fits(settings, stream, max(part.num_train for part in parts))
    steps = [part.steps(settings.batch_size, settings.epochs) for part in parts]
    rates = task_learning_rates(settings, steps)
    with scope(strategy):
        learner = build_learner(
            settings, stream, seed, options.steps_per_execution, learning_rate=rates[0]
        )
    options = dataclasses.replace(options, steps_per_execution=learner.steps_per_execution)
    learner.record_steps(options.record_every)
    clock = TrainClock()
    (folder / FILE_NAME).unlink(missing_ok=True)
    steps_csv = StepRecord(folder / "steps.csv", every=options.record_every)
    # A run that was stopped after its last step finishes without another `fit`.
    steps_csv.set_model(learner)
    evaluation = Evaluation(learner, stream)
    store = CheckpointStore((follows or folder) / CHECKPOINTS)
    if options.overwrite and follows is None:
        store.clear()
    diagnostics = _diagnostics(settings, options, stream, seed, folder)
    if diagnostics is not None:
        diagnostics.set_model(learner)
    state = RunState(
        learner, evaluation, clock, steps_csv, store, settings.digest(), diagnostics,
        follows is not None,
    )  # fmt: skip
    joint = get_method(settings.method).joint
    progress = Progress(steps, learner.steps_per_execution, console or Console("none"), joint=joint)
    restored = not (follows and options.overwrite) and state.restore()
    check_agreement(strategy, settings.digest(), int(learner.step_log.steps.numpy()))
    if restored:
        progress.go_on(state.task, state.steps_in_task)
    else:
        shutil.rmtree(folder / "tensorboard", ignore_errors=True)
        evaluation.before_training()
    checkpointing = Checkpointing(state, options.checkpoint_every, request)
    profile = [StepProfile(folder / "profile")] if options.profile else []
    # A joint method has learned every task when its one part ends: its row is the last.
    row = len(stream) - len(parts)
    while state.task < len(parts):
        i, part, done = state.task, parts[state.task], state.steps_in_task
        rate_changes = i > 0 and rates[i] != rates[i - 1]
        if rate_changes and not bool(learner.task_is_open.numpy()):
            learner.optimizer.learning_rate = rates[i]
        before = clock.train_seconds
        apart = diagnostics.seconds if diagnostics else 0.0
        clock.start()
        if done < steps[i]:
            learner.fit(
                part.train_batches(
                    settings.batch_size, seed=seed, passes=settings.epochs, skip=done
                ),
                task_id=part.task_id,
                end_task=False,
                shuffle=False,
                verbose=0,
                callbacks=[
                    clock,
                    progress,
                    steps_csv,
                    *_tensorboard(folder, i, options),
                    *profile,
                    checkpointing,
                ],
            )
        learner.end_task()
        clock.stop(diagnostics.seconds - apart if diagnostics else 0.0)
        evaluation.after(row + i, checkpointing.save_if_asked)
        progress.task_done(
            float(np.mean(evaluation.matrix[row + i, : row + i + 1])),
            steps[i] - done,
            clock.train_seconds - before,
        )
        state.task_done()
        checkpointing.raise_if_asked()
    steps_csv.finish()
    return make_record(
        settings,
        options,
        seed,
        matrix=evaluation.matrix,
        initial=np.array(evaluation.initial),
        measured={
            **measured_of(learner, rates, steps),
            "train_seconds": clock.train_seconds,
            "compile_seconds": clock.compile_seconds,
            "eval_seconds": evaluation.seconds,
            "replicas": strategy.num_replicas_in_sync if strategy else 1,
            **({"diagnostics": diagnostics.record()} if diagnostics else {}),
            **_estimated_smoothness(learner),
        },
    )


def _tensorboard(folder: Path, i: int, options: Options) -> list[keras.callbacks.Callback]:
    # A folder for each task: Keras counts batches from 0 in every fit.
    log = folder / "tensorboard" / f"task{i + 1}"
    if not options.tensorboard:
        return []
    return [keras.callbacks.TensorBoard(log, write_graph=False, update_freq=options.record_every)]


def _diagnostics(
    settings: Settings, options: Options, stream: Stream, seed: int, folder: Path
) -> ForgettingDiagnostics | None:
    if options.diagnostics == "off":
        return None
    return ForgettingDiagnostics(
        list(stream), options.diagnostics, batch_size=settings.batch_size, seed=seed,
        log_dir=folder / "tensorboard" / "diagnostics" if options.tensorboard else None,
    )  # fmt: skip


def _estimated_smoothness(learner: keras.Model) -> dict[str, float]:
    """The L that the run ended with, where it was estimated."""
    if getattr(learner, "estimate", None) is None:
        return {}
    alpha = tf.cast(learner.optimizer.learning_rate, tf.float32)
    return {"smoothness": float(learner.smoothness_in_use(alpha))}
