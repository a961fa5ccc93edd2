"""Several seeds of an experiment at once: train task by task, evaluate, return the records."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.callbacks import StepRecord
from nccl_tf.errors import LearningFailedError
from nccl_tf.experiment.build import build_learner, build_stream
from nccl_tf.experiment.console import Console
from nccl_tf.experiment.devices import devices_in_words
from nccl_tf.experiment.evaluation import Evaluation
from nccl_tf.experiment.footprint import check_fits
from nccl_tf.experiment.interrupts import Interrupted, InterruptRequest
from nccl_tf.experiment.measured import measured_of
from nccl_tf.experiment.progress import Progress
from nccl_tf.experiment.records import FILE_NAME, make_record
from nccl_tf.experiment.resume import clear_checkpoints
from nccl_tf.experiment.schedules import task_learning_rates
from nccl_tf.experiment.timing import TrainClock
from nccl_tf.experiment.train_seed import Record, Run
from nccl_tf.methods.learner import SKIPS_IN_A_ROW
from nccl_tf.methods.seed_stack import SeedStack
from nccl_tf.streams import Stream


class _Seed(NamedTuple):
    """What one seed has for itself."""

    run: Run
    stream: Stream
    steps: list[int]
    rates: list[float]
    learner: Any
    steps_csv: StepRecord
    evaluation: Evaluation


def run_seeds(runs: Sequence[Run], request: InterruptRequest, console: Console) -> list[Record]:
    """Train and evaluate seeds from their beginning.

    Args:
        runs: Of the same settings and options; their folders exist and are locked.
        request: Tells of signals; the seeds stop where one came.
        console: Takes the progress.

    Returns:
        A record for each run; the seconds are those of all of them divided by their number.

    Raises:
        UserError: The seeds cannot be trained together, or as for `run_seed`.
        Interrupted: A signal came.
        LearningFailedError: Ten steps in a row of one seed were not finite.
    """
    settings = runs[0].settings
    seeds = [_begun(run, len(runs)) for run in runs]
    learners = [seed.learner for seed in seeds]
    stack = SeedStack(learners)
    numbers = ", ".join(str(run.seed) for run in runs)
    console.say(
        f"{console.styled(f'{settings.method} on {settings.dataset}', 'bold')} "
        f"({settings.head}-head), seeds {numbers} together, learning rate "
        f"{settings.learning_rate:g}\nruns on {devices_in_words()}, {settings.precision}; "
        f"TensorFlow {tf.__version__}"
    )
    for run in runs:
        console.event(
            "run", method=settings.method, dataset=settings.dataset, head=settings.head,
            seed=run.seed, tasks=settings.max_tasks, device=devices_in_words(),
            folder=str(run.folder),
        )  # fmt: skip
    for seed in seeds:
        seed.evaluation.before_training()
    # Seeds whose task is longer go on alone; the bar shows what they do together.
    steps = [min(of_task) for of_task in zip(*(seed.steps for seed in seeds), strict=True)]
    clock = TrainClock()
    progress = Progress(steps, learners[0].steps_per_execution, console)
    clock.set_model(stack)

    def check() -> None:
        if request.signum is not None:
            raise Interrupted(request.signum)

    for i in range(len(seeds[0].stream)):
        before = clock.train_seconds
        clock.start()
        _train_task(i, seeds, stack, [clock, progress, *(s.steps_csv for s in seeds)], check)
        for learner in learners:
            learner.end_task()
        clock.stop()
        for seed in seeds:
            seed.evaluation.after(i, check)
        rows = [seed.evaluation.matrix[i, : i + 1] for seed in seeds]
        progress.task_done(float(np.mean(rows)), steps[i], clock.train_seconds - before)
        check()
    return [_record(seed, clock, runs) for seed in seeds]


def _begun(run: Run, together: int) -> _Seed:
    settings, options = run.settings, run.options
    stream = build_stream(settings, options, run.seed)
    check_fits(settings, stream, max(task.num_train for task in stream), together)
    steps = [task.steps(settings.batch_size, settings.epochs) for task in stream]
    rates = task_learning_rates(settings, steps)
    learner = build_learner(settings, stream, run.seed, options.steps_per_execution)
    learner.record_steps(options.record_every)
    (run.folder / FILE_NAME).unlink(missing_ok=True)
    # Those of a run that was stopped alone would not fit the steps.csv that begins here.
    clear_checkpoints(run.folder)
    steps_csv = StepRecord(run.folder / "steps.csv", every=options.record_every)
    steps_csv.set_model(learner)
    return _Seed(run, stream, steps, rates, learner, steps_csv, Evaluation(learner, stream))


def _train_task(
    i: int,
    seeds: Sequence[_Seed],
    stack: SeedStack,
    callbacks: Sequence[keras.callbacks.Callback],
    check: Any,
) -> None:
    settings = seeds[0].run.settings

    def batches(seed: _Seed, skip: int = 0) -> tf.data.Dataset:
        return seed.stream[i].train_batches(
            settings.batch_size, seed=seed.run.seed, passes=settings.epochs, skip=skip
        )

    for seed in seeds:
        seed.learner.optimizer.learning_rate = seed.rates[i]
    calls = stack.learn([batches(seed) for seed in seeds], i)
    for callback in callbacks:
        callback.on_train_begin()
    done = 0
    while True:
        for callback in callbacks:
            callback.on_train_batch_begin(done)
        so_far = next(calls, None)
        if so_far is None:
            break
        done = so_far
        for callback in callbacks:
            callback.on_train_batch_end(done - 1)
        _check_finite(seeds)
        check()
    for callback in callbacks:
        callback.on_train_end()
    for seed in seeds:
        if done < seed.steps[i]:
            seed.learner.fit(
                batches(seed, done), task_id=i, end_task=False, shuffle=False, verbose=0,
                callbacks=[seed.steps_csv],
            )  # fmt: skip
            check()
    _check_finite(seeds)


def _check_finite(seeds: Sequence[_Seed]) -> None:
    for seed in seeds:
        if int(seed.learner.skipped_in_a_row.numpy()) >= SKIPS_IN_A_ROW:
            raise LearningFailedError(
                f"ten steps in a row of seed {seed.run.seed} had no finite loss and gradient, so "
                "all seeds have ended: try a lower --learning_rate (it was "
                f"{seed.run.settings.learning_rate:g}), or leave --vectorize_seeds out"
            )


def _record(seed: _Seed, clock: TrainClock, runs: Sequence[Run]) -> Record:
    seed.steps_csv.finish()
    return make_record(
        seed.run.settings,
        replace(seed.run.options, steps_per_execution=seed.learner.steps_per_execution),
        seed.run.seed,
        matrix=seed.evaluation.matrix,
        initial=np.array(seed.evaluation.initial),
        measured={
            **measured_of(seed.learner, seed.rates, seed.steps),
            "train_seconds": clock.train_seconds / len(runs),
            "compile_seconds": clock.compile_seconds / len(runs),
            "eval_seconds": seed.evaluation.seconds,
            "replicas": 1,
            "seeds_together": [run.seed for run in runs],
        },
    )
