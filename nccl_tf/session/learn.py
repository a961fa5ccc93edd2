"""A whole stream in one call."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from nccl_tf.arguments.evaluate import ALL, checked_evaluate
from nccl_tf.errors import UserError, checked_at_least, translate_os_error
from nccl_tf.learner.hints import HEADS, positive_warning
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.measures import judges_class_one
from nccl_tf.learner.preprocessor import prepared_batch
from nccl_tf.records.checkpoints import CheckpointStore
from nccl_tf.records.files import lock_folder, remove_left_over
from nccl_tf.records.provenance import package_source
from nccl_tf.session.confusions import Confusions
from nccl_tf.session.course import Course
from nccl_tf.session.evaluation import Evaluation
from nccl_tf.session.fingerprint import describe, fingerprint
from nccl_tf.session.loop import Session
from nccl_tf.session.result import LearnResult
from nccl_tf.session.run import check_compiled, describe_call, learned_before, learned_run
from nccl_tf.session.state import SessionCallback, SessionState
from nccl_tf.session.task_metric import Metric, TaskMetric
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.task import Task, bytes_of_examples, classes_by_number, training_parts
from nccl_tf.streams.validation import hold_out

_BACKUP_DIR = "backup_dir"


def learn(
    model: Learner,
    stream: Stream | Sequence[Task],
    *,
    batch_size: int = 10,
    epochs: int | Sequence[int] = 1,
    seed: int = 0,
    metric: Metric = None,
    mode: str = "auto",
    joint: bool = False,
    evaluate: str = ALL,
    class_weight: Mapping[Any, float] | None = None,
    validation: float | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    backup_dir: str | os.PathLike | None = None,
    backup_every: float = 60.0,
    verbose: int = 1,
) -> LearnResult:
    """Learn the tasks of a stream one after the other, and evaluate all of them after each one.

    It is what `fit` for each task and an evaluation of every task so far would do.

    Args:
        model: A compiled learner.
        stream: A stream, or its tasks in order.
        batch_size: Examples in a batch.
        epochs: Passes over each task, each in another order; or a number for each task, such as
            [20, 1, 1], of a pretrained network that adapts to the first task.
        seed: Seed of the orders.
        metric: What the matrix holds: a Keras metric, its name or a function of targets and outputs
            (logits, for a classifier), as `compile` takes it; None for accuracy, the share of
            examples of which the right class has the largest logit, or of one output, of which it
            is on the right side of one half.
        mode: "max" where more of the metric is better, "min" where less is, "auto" where Keras
            knows, as for its own metrics.
        joint: Learn all tasks at once, on the union of their examples: the upper bound, for a model
            such as `MultiTask`. Only the last row of the matrix is filled.
        evaluate: Which tasks are evaluated after each task: "all" (those so far and the next one),
            "new" (the task itself; after the last task all) or "every:k" (as "all" after every k-th
            task and the last one, else as "new"). Before the first task all are, with "new" the
            first one alone. What is not measured is nan in the matrix and in `result.initial`, and
            so is forgetting without the whole of it; that since each task was learned is
            `-result.backward_transfer`.
        class_weight: Factors of the examples' weights by class, its number or its name in the
            stream, as for `fit`: of those of a task and of those that are replayed alike.
        validation: A share of each task's training examples, in (0, 1), that is held out of them,
            drawn by the seed as by `stream.with_validation(validation, seed)`, and measured after
            each epoch, so that callbacks may watch "val_loss". None for the validation examples
            that the stream has.
        callbacks: Keras callbacks; each task is a training of its own to them, whose epochs and
            batches are counted from 0. Those of `CSVLogger`, `ModelCheckpoint` and `TensorBoard`
            go on over the tasks: task k, from 0, begins with epoch k `epochs`, or the sum of those
            of the tasks before it. What
            `EarlyStopping`, `ReduceLROnPlateau` and `ModelCheckpoint` compare with is the best of
            the task; a rate that one lowers stays low in the next task, as in Keras.
        backup_dir: A folder for backups. Killed at any time and called again with the same
            arguments, the call resumes from the last backup and ends bit-identical; called
            after its end, it puts the trained weights back and returns the result. All
            examples, the network's layers, the arguments and whether XLA compiles the steps are
            compared with those of the backup, but for callbacks and code of your own. So are the
            weights and the memory that the call begins with: others, as of a network that was built
            from another seed or from none, are refused once the call has ended; before its end it
            goes on with those of the backup, and a log line says so. A callback that keeps state of
            its own, such as `EarlyStopping`, is backed up if it has `state()` (JSON values) and
            `restore(state)`; if not, as `ModelCheckpoint(save_best_only=True)`, or if it changes
            the model where an epoch begins, as `LearningRateScheduler` does, backups are taken at
            the ends of tasks only.
        backup_every: Seconds between two backups within a task.
        verbose: 1 for a line a task, 0 for none.

    Returns:
        The matrix and the numbers made of it; of a model with `average_weights` those of its plain
        weights, and in `averaged` those of the average.

    Raises:
        UserError: There are no tasks, a number is below 1, `evaluate` is unknown or has no meaning
            (all tasks are learned at once), `joint` is missing for a model that learns all tasks at
            once, or set for one that joins those so far, the metric is unknown or missing where
            targets are no classes, `class_weight` is refused as by `fit`, no share can be held out,
            or the folder holds the backup of another call, or of an ended one that began with other
            weights, or cannot be written.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits")
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    model = nccl_tf.NCCL(network, nccl_tf.RingMemory(5), heads=stream.heads)
    model.compile(keras.optimizers.SGD(0.1))
    result = nccl_tf.learn(model, stream)
    print(result.average_accuracy, result.forgetting)
    ```
    """
    check_compiled(model)
    source, tasks = package_source(), _tasks(stream)
    names = getattr(stream, "class_names", None)
    weights = model.class_factors(class_weight, names)
    if validation is not None:
        tasks = _with_validation(tasks, validation, seed)
    joins = bool(model.why_not("tasks_alone"))
    if joint and joins:
        raise UserError(
            f"received joint=True for {type(model).__name__}, which "
            f"{model.why_not('tasks_alone')}: leave joint out, or take Finetune to learn all "
            "tasks at once"
        )
    parts: Sequence[Any] = training_parts(tasks, joint=joint, joins=joins)
    passes = _passes(epochs, len(parts))
    for part, number in zip(parts, passes, strict=True):
        part.steps(batch_size, number)
    if metric is None and not tasks[0].classes:
        raise _no_metric(tasks[0])
    if not joint and (reason := model.why_not("single_tasks")):
        raise UserError(
            f"received {type(model).__name__}, which {reason}: add joint=True, or "
            "take Finetune to learn one task after the other"
        )
    is_accuracy = metric is None or (isinstance(metric, str) and metric == "accuracy")
    # Of one output, or with targets of one's own, accuracy is a metric like others.
    is_accuracy = is_accuracy and model.example_loss.has_classes
    score = None if is_accuracy else TaskMetric(model, metric or "accuracy", mode)
    if score is not None:
        score.check(tasks[0])
        judged = [score.name] if judges_class_one(score.metric, model.num_classes) else []
        hint = positive_warning(tasks[0].class_names, tasks[0].positive, judged)
        model.warn_once("positive", hint)
    evaluate = checked_evaluate(evaluate, len(tasks))
    if joint and evaluate != ALL:
        raise UserError(
            f"received evaluate={evaluate} with joint=True: all tasks are learned, and evaluated, "
            "at once; leave one of the two out"
        )
    evaluation = Evaluation(model, tasks, score, evaluate, keeps_confusions=True)
    # A memory without shapes gets them before its state is compared or put back, and a ring the
    # classes of all tasks, which no single `fit` knows.
    classes = classes_by_number(tasks)
    if any(not memory.is_allocated for memory in model.memories()):
        first = next(iter(parts[0].train_batches(batch_size)))
        first = model.as_batch(prepared_batch(model.network, first))
        model.build_memory(first, classes if all(classes) else None)
    if getattr(stream, "heads", None) is not None and model.heads is None:
        model.warn_once("heads", HEADS)
    data = f"{len(tasks)} tasks"
    if isinstance(stream, Stream):
        data = f"{stream.made} {stream.name}".strip()  # Names of records are cut at their end.
    settings = describe_call(
        model, tasks, data, batch_size=batch_size, epochs=passes, joint=joint, evaluate=evaluate,
        class_weight=weights, validation=validation, positive=tasks[0].positive,
    )  # fmt: skip
    course = Course(evaluation, len(parts), settings.learning_rate)
    callbacks = [*callbacks, course]
    watching = [*callbacks, _Report(evaluation)] if verbose else callbacks
    session = functools.partial(
        Session, model, parts, evaluation,
        batch_size=batch_size, epochs=passes, seed=seed, class_weight=weights, callbacks=watching,
    )  # fmt: skip
    earlier = learned_before(model)
    if backup_dir is None:
        session().run()
    else:
        numbers: dict[str, Any] = {"batch": batch_size, "epochs": _number(passes), "seed": seed}
        numbers |= {"metric": describe(metric), "mode": mode, "joint": joint}
        numbers |= {} if evaluate == ALL else {"evaluate": evaluate}
        numbers |= {"class_weight": weights} if weights else {}
        folder = Path(backup_dir).expanduser()
        state = SessionState(
            CheckpointStore(folder, _BACKUP_DIR, "the same call"),
            {"model, stream or setting": fingerprint(model, tasks, numbers)},
            model, evaluation, callbacks,
            "call learn with the same model, stream and arguments, or give another backup_dir",
            identity_has_weights=False,
        )  # fmt: skip
        with _held(folder):
            session(state=state, every=backup_every).run()
        earlier = state.earlier
    settings = dataclasses.replace(
        settings, learning_rate=course.rate, first_task_learning_rate=course.rate
    )
    steps = [part.steps(batch_size) * done for part, done in zip(parts, course.passes, strict=True)]
    run = learned_run(
        model, settings, earlier, seed, source, steps, [part.num_train for part in parts],
        course.train_seconds, evaluation.seconds, bytes_of_examples(tasks) if joins else 0,
    )  # fmt: skip
    head = "single head" if model.heads is None else "multi-head"
    title = f"{type(model).__name__} on {data}, {head}{', continued' if earlier else ''}"
    initial = np.array(evaluation.initial)
    name = "accuracy" if score is None else score.name
    higher_is_better = score is None or score.higher_is_better
    averaged = None
    if evaluation.averaged is not None:
        averaged = LearnResult(
            evaluation.averaged, initial, name, higher_is_better, f"{title}, averaged weights",
            confusions=_confusions(evaluation, "averaged", names, tasks) if is_accuracy else None,
        )  # fmt: skip
    return LearnResult(
        evaluation.matrix, initial, name, higher_is_better, title, averaged, run,
        _confusions(evaluation, "plain", names, tasks) if is_accuracy else None,
    )  # fmt: skip


def _confusions(
    evaluation: Evaluation, which: str, names: Sequence[str] | None, tasks: Sequence[Task]
) -> Confusions:
    return Confusions([task.classes for task in tasks], evaluation.confusions[which], names)


def _passes(epochs: Any, parts: int) -> list[int]:
    """The passes over each part.

    Raises:
        UserError: They are numbers for another count of parts, or one is no whole number from 1.
    """
    if not isinstance(epochs, (list, tuple)):
        return [checked_at_least("epochs", epochs, 1)] * parts
    if len(epochs) != parts:
        raise UserError(
            f"received epochs={list(epochs)!r}, {len(epochs)} numbers for {parts} trainings: "
            "expected one for each task, or one number for all"
        )
    return [checked_at_least("epochs", each, 1) for each in epochs]


def _number(passes: list[int]) -> int | list[int]:
    """The passes as one number, where they are the same for all parts."""
    return passes[0] if len(set(passes)) == 1 else passes


class _Report(SessionCallback):
    """Prints a line after each task."""

    def __init__(self, evaluation: Evaluation):
        super().__init__()
        self._evaluation = evaluation

    def after_task(self, row: int) -> None:
        """Print the mean over the tasks so far, or the value of this one."""
        matrix = self._evaluation.matrix
        mean, what = self._evaluation.mean_so_far(row), "mean over tasks so far"
        if mean is None:
            mean, what = float(matrix[row, row]), "value of it"
        print(f"task {row + 1}/{len(matrix)}: {what} {mean:.3f}")


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other processes out of a backup folder while the body runs.

    Raises:
        UserError: Another process runs in it, or it cannot be written.
    """
    with translate_os_error(f"into {folder}", f"choose another {_BACKUP_DIR}"):
        folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, _BACKUP_DIR):
        remove_left_over(folder, _BACKUP_DIR)
        yield


def _tasks(stream: Any) -> list[Task]:
    """The tasks of a stream.

    Raises:
        UserError: There are none.
    """
    is_stream = isinstance(stream, (Stream, list, tuple))
    tasks = list(stream) if is_stream else []
    if not tasks or not all(isinstance(task, Task) for task in tasks):
        raise UserError(
            f"received a {type(stream).__name__} as stream: expected a stream or its tasks, as of "
            "nccl_tf.load_stream or nccl_tf.stream_from_arrays"
        )
    return tasks


def _with_validation(tasks: Sequence[Task], share: float, seed: int) -> list[Task]:
    """Tasks with a share of their training examples held out.

    Raises:
        UserError: They have validation examples already, or as for `held_out`.
    """
    if any(task.validation is not None for task in tasks):
        raise UserError(
            f"received validation={share!r} and a stream that has validation examples: leave one "
            "of the two out"
        )
    return list(hold_out(tasks, share, seed))


def _no_metric(task: Task) -> UserError:
    """The error of a metric that is missing where targets are no classes."""
    labels = task.train.labels
    several = labels.reshape(len(labels), -1).sum(axis=1) != 1
    if not np.isin(labels, (0, 1)).all():
        what = 'numbers to predict: expected one, such as metric="mean_absolute_error"'
    elif several.any():  # one label of 0 and 1, or tags
        what = 'labels of 0 and 1: expected one, such as metric="binary_accuracy"'
    else:
        what = "one-hot classes: make them numbers, labels.argmax(axis=1), or give a metric"
    return UserError(f"received no metric for a stream whose targets are {what}")
