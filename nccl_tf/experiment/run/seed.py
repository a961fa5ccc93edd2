"""One seed of an experiment: train task by task, evaluate, and return the record."""

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.choices import STEP_SCHEDULES
from nccl_tf.arguments.evaluate import ALL
from nccl_tf.callbacks import ForgettingDiagnostics, StepRecord
from nccl_tf.errors import translate_os_error
from nccl_tf.experiment.run.build import (
    build_learner,
    build_stream,
    task_learning_rates,
    training_rate,
)
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.devices import (
    check_batches,
    count_threads,
    describe_processors,
    make_strategy,
    use_xla,
)
from nccl_tf.experiment.run.memory_check import check_fits
from nccl_tf.experiment.run.progress import ProgressReport
from nccl_tf.experiment.run.signals import InterruptRequest
from nccl_tf.experiment.run.tensorboard import TensorBoardLog, events_folder
from nccl_tf.experiment.run.timing import TrainClock
from nccl_tf.methods.registry import get_method
from nccl_tf.records.checkpoints import CheckpointStore, arrays_sha256
from nccl_tf.records.files import remove_left_over
from nccl_tf.records.new_record import make_record
from nccl_tf.records.options import RunOptions
from nccl_tf.records.provenance import package_source
from nccl_tf.records.record import CHECKPOINTS, FILE_NAME, MODEL_NAME, Record
from nccl_tf.records.settings import Settings
from nccl_tf.session.evaluation import Evaluation
from nccl_tf.session.loop import Session
from nccl_tf.session.measurements import measured_entries
from nccl_tf.session.state import Place, SessionCallback, SessionState
from nccl_tf.streams import Stream
from nccl_tf.streams.task import Task, bytes_of_examples, training_parts


def run_seed(
    settings: Settings,
    options: RunOptions,
    seed: int,
    folder: Path,
    request: InterruptRequest,
    console: Console | None = None,
) -> Record:
    """Train and evaluate one seed, resuming from its last checkpoint where there is one.

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
        console: Takes what there is to say; None for nobody.

    Returns:
        The record, as `record.write_record` takes it.

    Raises:
        UserError: Data are missing or broken, the schedule's rates are impossible, the machine
            has too little memory, XLA cannot compile what it is to compile, a checkpoint is of
            another run, or a file cannot be written.
        Interrupted: A signal came; a checkpoint is written.
        LearningFailedError: Ten steps in a row were not finite.
    """
    console = console or Console("none")
    source, strategy = package_source(), make_strategy(settings.distribute)
    check_batches(settings, strategy)
    if settings.deterministic:
        keras.utils.set_random_seed(seed)
        tf.config.experimental.enable_op_determinism()
    stream = build_stream(settings, options, seed)
    method = get_method(settings.method)
    parts = training_parts(stream.tasks, joint=method.joint, joins=method.joins)
    check_fits(settings, stream, max(part.num_train for part in parts))
    steps = [part.steps(settings.batch_size, settings.epochs) for part in parts]
    rates = task_learning_rates(settings, steps)
    with strategy.scope() if strategy else nullcontext():
        learner = build_learner(
            settings, stream, seed, options.steps_per_execution,
            learning_rate=training_rate(settings, rates, steps),
            jit_compile=use_xla(settings, options),
        )  # fmt: skip
    # About 200 rows of a run, of at most 50 steps each.
    window = options.record_every or max(1, min(50, sum(steps) // 200))
    if options.save_model:
        learner.check_saves()
    with translate_os_error(folder / FILE_NAME, "remove it, or choose another --output_dir"):
        (folder / FILE_NAME).unlink(missing_ok=True)
    store = CheckpointStore(folder / CHECKPOINTS)
    remove_left_over(store.folder)
    if options.overwrite:
        store.clear()
    evaluation = Evaluation(learner, stream, evaluate=settings.evaluate or ALL)
    events = events_folder(folder / "tensorboard", goes_on=not store.is_empty)
    diagnostics = _diagnostics(settings, options, stream, seed, events)
    clock = TrainClock(excluded=lambda: diagnostics.seconds if diagnostics else 0.0)
    steps_csv = StepRecord(folder / "steps.csv", every=window)
    callbacks: list[keras.callbacks.Callback] = [
        clock,
        ProgressReport(
            steps, console, evaluation, settings.epochs,
            joint=method.joint,
        ),
        steps_csv,
    ]  # fmt: skip
    if settings.schedule not in STEP_SCHEDULES:
        callbacks.append(_TaskRates(learner.optimizer, rates))
    if options.tensorboard:
        lengths = [part.steps(settings.batch_size) for part in parts]
        callbacks.append(TensorBoardLog(events, evaluation, window, lengths, settings.epochs))
    if diagnostics is not None:
        callbacks.append(diagnostics)
    identity = {
        "hash of settings": settings.digest(), "seed": seed, "--diagnostics": options.diagnostics
    }  # fmt: skip
    state = SessionState(
        store, identity, learner, evaluation, callbacks,
        "give the options that it began with, or start again with --overwrite",
    )  # fmt: skip
    session = Session(
        learner, parts, evaluation,
        batch_size=settings.batch_size, epochs=settings.epochs, seed=seed, callbacks=callbacks,
        state=state, every=options.checkpoint_every, interruption=request.interruption,
    )  # fmt: skip
    session.choose_execution(state.steps_per_program())
    used = describe_processors(settings, strategy, learner.execution.under_xla is not False)
    console.say(f"runs on {used}; TensorFlow {tf.__version__}")
    console.event(
        "run", method=settings.method, dataset=settings.dataset, head=settings.head, seed=seed,
        tasks=settings.max_tasks, device=used, folder=str(folder),
    )  # fmt: skip
    session.run()
    if options.save_model:
        learner.save(folder / MODEL_NAME)
    steps_csv.finish()
    options = dataclasses.replace(
        options,
        record_every=window,
        steps_per_execution=learner.execution.most_per_call,
        threads=count_threads(),
        workers=options.workers or 1,
    )
    return make_record(
        settings,
        options,
        seed,
        matrix=evaluation.matrix,
        averaged=evaluation.averaged,
        initial=np.array(evaluation.initial),
        measured=measured_entries(
            learner,
            settings,
            source=source,
            rates=rates,
            steps=steps,
            examples=[part.num_train for part in parts],
            train_seconds=clock.train_seconds,
            compile_seconds=clock.compile_seconds,
            eval_seconds=evaluation.seconds,
            kept=bytes_of_examples(stream.tasks) if method.joins else 0,
            is_own_process=True,
        )
        | {"data_sha256": examples_sha256(stream[0])}
        | ({"diagnostics": diagnostics.record()} if diagnostics else {}),
    )


def examples_sha256(task: Task) -> str:
    """SHA-256 of the examples of a task for training and testing, in hexadecimal."""
    arrays: dict[str, np.ndarray] = {}
    for part, (inputs, labels) in (("train", task.train), ("test", task.test)):
        named = inputs if isinstance(inputs, dict) else {"": inputs}
        arrays |= {f"{part} {name}": named[name] for name in sorted(named)}
        arrays[f"{part} labels"] = labels
    return arrays_sha256(arrays)


class _TaskRates(SessionCallback):
    """Sets the learning rate of each task where the schedule changes it."""

    def __init__(self, optimizer: keras.Optimizer, rates: Sequence[float]):
        super().__init__()
        self._optimizer, self._rates = optimizer, rates

    def before_task(self, place: Place) -> None:
        """Set the rate of a task that begins; one that resumes has that of its checkpoint."""
        i = place.task
        if place == Place(i) and i > 0 and self._rates[i] != self._rates[i - 1]:
            self._optimizer.learning_rate = self._rates[i]


def _diagnostics(
    settings: Settings, options: RunOptions, stream: Stream, seed: int, events: Path
) -> ForgettingDiagnostics | None:
    if options.diagnostics == "off":
        return None
    return ForgettingDiagnostics(
        list(stream), options.diagnostics, batch_size=settings.batch_size, seed=seed,
        log_dir=events / "diagnostics" if options.tensorboard else None,
    )  # fmt: skip
