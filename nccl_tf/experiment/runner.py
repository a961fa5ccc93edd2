"""One seed of an experiment: train task by task, evaluate, and return the record."""

import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.callbacks import StepRecord
from nccl_tf.experiment.build import build_learner, build_stream
from nccl_tf.experiment.options import Options
from nccl_tf.experiment.progress import Progress
from nccl_tf.experiment.records import FILE_NAME, make_record
from nccl_tf.experiment.schedules import task_learning_rates
from nccl_tf.experiment.settings import Settings
from nccl_tf.experiment.timing import TrainClock

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def run_seed(settings: Settings, options: Options, seed: int, folder: Path) -> dict[str, Any]:
    """Train and evaluate one seed.

    Row i of the accuracy matrix holds the tasks up to i, which are trained, and the next one, for
    forward transfer.

    Args:
        settings: What is run.
        options: Where data are read, and what is written beside the record.
        seed: Seed of stream, weights and draws.
        folder: The run's folder, which exists; takes steps.csv and TensorBoard events.
            A result.json of an earlier run goes when training begins.

    Returns:
        The record, as `records.write_record` takes it.

    Raises:
        UserError: Data are missing or broken, or the schedule's rates are impossible.
    """
    if settings.deterministic:
        keras.utils.set_random_seed(seed)
        tf.config.experimental.enable_op_determinism()
    stream = build_stream(settings, options, seed)
    steps = [task.steps(settings.batch_size, settings.epochs) for task in stream]
    rates = task_learning_rates(settings, steps)
    learner = build_learner(settings, stream, seed, options.steps_per_execution)
    clock = TrainClock()
    progress = Progress(steps, options.steps_per_execution)
    (folder / FILE_NAME).unlink(missing_ok=True)
    steps_csv = StepRecord(folder / "steps.csv", every=options.record_every)
    callbacks = [clock, progress, steps_csv]
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    evaluation = _Evaluation(learner, stream)
    initial = [evaluation.accuracy(task) for task in range(len(stream))]
    for i, task in enumerate(stream):
        learner.optimizer.learning_rate = rates[i]
        batches = task.train_batches(settings.batch_size, seed=seed, passes=settings.epochs)
        before = clock.train_seconds
        clock.start()
        learner.fit(
            batches,
            task_id=task.task_id,
            shuffle=False,
            verbose=0,
            callbacks=[*callbacks, *_tensorboard(folder, i, options)],
        )
        clock.stop()
        evaluation.after(i)
        progress.task_done(
            float(np.mean(evaluation.matrix[i, : i + 1])), clock.train_seconds - before
        )
    steps_csv.finish()
    return make_record(
        settings,
        options,
        seed,
        matrix=evaluation.matrix,
        initial=np.array(initial),
        measured={
            "learning_rates": rates,
            "parameters": sum(int(np.prod(v.shape)) for v in learner.trainable_variables),
            "train_seconds": clock.train_seconds,
            "compile_seconds": clock.compile_seconds,
            "eval_seconds": evaluation.seconds,
            "steps": sum(steps),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT,
        },
    )


def _tensorboard(folder: Path, i: int, options: Options) -> list[keras.callbacks.Callback]:
    # A folder for each task: Keras counts batches from 0 in every fit.
    log = folder / "tensorboard" / f"task{i + 1}"
    if not options.tensorboard:
        return []
    return [keras.callbacks.TensorBoard(log, write_graph=False, update_freq=options.record_every)]


class _Evaluation:
    """The accuracy matrix as it fills, [tasks, tasks], nan where not evaluated, and its time."""

    def __init__(self, learner: keras.Model, stream: Any) -> None:
        self._learner, self._tasks = learner, list(stream)
        self.matrix = np.full((len(self._tasks), len(self._tasks)), np.nan)
        self.seconds = 0.0

    def accuracy(self, j: int) -> float:
        task = self._tasks[j]
        images, labels = task.test
        start = time.perf_counter()
        result = self._learner.accuracy(images, labels, task.task_id)
        self.seconds += time.perf_counter() - start
        return float(result)

    def after(self, i: int) -> None:
        """Fill the row of the state after training task i."""
        for j in range(min(i + 2, len(self._tasks))):
            self.matrix[i, j] = self.accuracy(j)
