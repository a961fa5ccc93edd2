"""Measures forgetting as the paper's theory describes it, for any learner."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.diagnostics.full_gradient import FullGradient
from nccl_tf.diagnostics.gamma import GammaSum
from nccl_tf.diagnostics.task_end import TaskEnd
from nccl_tf.errors import UserError, check_tensorboard, checked_name, checked_seed
from nccl_tf.learner.checks import is_plain_sgd
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.dark_replay import DarkReplay
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.step import Step
from nccl_tf.memories.ring import RingMemory
from nccl_tf.networks.inspection import check_holds_no_state
from nccl_tf.streams import Task
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.seeding import DIAGNOSTICS, generator
from nccl_tf.streams.task import classes_by_number

EXTENTS = ("subset", "full")
GAMMA_EVERY = 10


class ForgettingDiagnostics(keras.callbacks.Callback, Option):
    r"""Measures $\Gamma$ at the steps, and gradients, losses and $B_t$ at the end of every task.

    It changes nothing in training: gradients are taken without a trace in weights, batch-norm
    statistics, memories and counters, and its draws come from generators of its own. `record` gives
    what was measured; docs/theory.md says how.

    Args:
        tasks: The tasks of the stream, the first one first; all that are trained on.
        extent: "subset": gradients over a fixed random subset of each task, and $\Gamma$ of
            learners that do not measure it themselves at every 10th step, times 10; "full": over
            all examples, at every step.
        subset: Examples of each task in the subset; of the first task's test examples 5 times that.
        smoothness: $L$ for learners that have none of their own.
        slots_per_class: m of the ring that stands in for the memory of learners that replay
            nothing, or in another form than the paper's.
        memory_batch_size: $|I|$ for these.
        batch_size: $|J|$ for the draws at task ends.
        seed: Of the subset and the draws.
        log_dir: Folder for TensorBoard's events, or None.

    Raises:
        UserError: The extent is unknown, there is no task, or there is a `log_dir` and the package
            tensorboard is not installed.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        extent: str = "subset",
        *,
        subset: int = 200,
        smoothness: float = 1.0,
        slots_per_class: int = 5,
        memory_batch_size: int = 10,
        batch_size: int = 10,
        seed: int = 0,
        log_dir: str | Path | None = None,
    ):
        super().__init__()
        self.extent = checked_name("diagnostics", extent, EXTENTS)
        self._tasks = {task.task_id: task for task in tasks}
        if not self._tasks:
            raise UserError("received no tasks: pass the tasks of the stream, as nccl_tf.Task")
        self.subset = int(subset) if extent == "subset" else None
        self.seed, self.smoothness = checked_seed(seed), float(smoothness)
        self._slots, self._batches = int(slots_per_class), (int(memory_batch_size), int(batch_size))
        if log_dir is not None:
            check_tensorboard("log_dir", "leave it out")
        self._log_dir = log_dir
        # Made by `set_model`, which `fit` calls before anything else.
        self._gamma: Any = None
        self._task_end: Any = None
        self._parts: dict[int, Examples] = {}
        self.rows: list[dict[str, Any]] = []
        self.seconds = 0.0

    def set_model(self, model: keras.Model) -> None:
        """Start observing; `fit` calls it.

        Raises:
            UserError: Targets are no class numbers, there are several inputs, the model learns
                without gradients, it has step sizes for each variable, or it replays kept logits,
                which there are of stored examples alone.
        """
        if isinstance(model, Learner) and (reason := model.why_not("diagnostics")):
            raise UserError(
                f"received a {type(model).__name__}, which {reason}: the diagnostics measure steps "
                "along gradients; leave one of the two out"
            )
        if isinstance(model, Learner) and (dark := model.option(DarkReplay)):
            raise UserError(
                f"received a learner with dark={dark.dark:g}: the diagnostics take the loss on "
                "all examples of past tasks, whose logits are not stored; leave one of the two out"
            )
        if getattr(model, "grad_scope", "all") != "all":
            raise UserError(
                f"received a learner with grad_scope={model.grad_scope!r}: the diagnostics measure "
                "a step by one alpha_H and one beta_H; leave one of the two out"
            )
        super().set_model(model)
        if self._gamma is None:
            first = next(iter(self._tasks.values())).test.inputs
            _check_measurable(model.example_loss, first)
            shadow = RingMemory(
                self._slots, classes_by_number(list(self._tasks.values())), first.shape[1:],
                first.dtype.name, self.seed,
            )  # fmt: skip
            every = 1 if self.extent == "full" else GAMMA_EVERY
            self._gamma = GammaSum(model, shadow, self.smoothness, self._batches[0], every)

            def losses(batch: Batch) -> tf.Tensor:
                return model.example_loss.of(model.forward(batch, training=False).masked, batch)

            inputs = tf.TensorSpec((None, *first.shape[1:]), first.dtype)
            full = FullGradient(model.trainable_variables, losses, inputs)
            drawn = getattr(model, "memory_batch_size", self._batches[0])
            self._task_end = TaskEnd(self._gamma, full, self._examples, (drawn, self._batches[1]))
        if model.option(ForgettingDiagnostics) is not self:
            check_holds_no_state(model.network, type(self).__name__)
            model.add_option(self)

    def before_step(self, batch: Batch) -> Any:
        return self._gamma.before_step(batch)

    def after_step(self, batch: Batch, step: Step, note: Any) -> None:
        self._gamma.after_step(batch, step, note)

    def check(self, done: str) -> None:
        if done == "grown":
            raise UserError(
                f"{type(self.model).__name__} cannot add classes while it is observed by "
                f"{type(self).__name__}, whose graphs hold its weights: add them before or after "
                "the observed tasks"
            )

    def on_task_end(self, task_id: int) -> None:
        start = time.perf_counter()
        ended = [row["task"] for row in self.rows if row["task"] != task_id]
        ended = list(dict.fromkeys(ended))
        first, task = next(iter(self._tasks.items()))
        random = generator(self.seed, DIAGNOSTICS, 1, len(ended))
        row = self._task_end.row(task_id, ended, first, self._test(task), random)
        self.rows.append(row)
        shadow = generator(self.seed, DIAGNOSTICS, 2, task_id)
        self._gamma.fill_shadow(task_id, self._tasks[task_id].train, shadow)
        if self._log_dir is not None:
            _write_events(Path(self._log_dir), len(self.rows), row)
        self.seconds += time.perf_counter() - start

    def record(self) -> dict[str, Any]:
        """The measurements as JSON values; docs/theory.md explains every name."""
        return {
            "extent": self.extent,
            "subset": self.subset,
            "gamma_every": self._gamma.every,
            "form": self._gamma.form,
            "shadow_slots_per_class": None if self._gamma.shadow is None else self._slots,
            "plain_sgd": is_plain_sgd(self.model.optimizer),
            "seconds": self.seconds,
            "tasks": self.rows,
        }

    def variables(self) -> dict[str, keras.Variable]:
        """State that goes into a checkpoint, by name."""
        return {f"diagnostics {i}": v for i, v in enumerate(self._gamma.variables())}

    def state(self) -> dict[str, Any]:
        """The rest of the state for a checkpoint, as JSON values."""
        return {"extent": self.extent, "rows": self.rows, "seconds": self.seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint.

        Raises:
            ValueError: It was taken with another extent.
        """
        if state["extent"] != self.extent:
            raise ValueError(f"it was taken with --diagnostics={state['extent']}")
        self.rows, self.seconds = list(state["rows"]), state["seconds"]

    def _examples(self, task_id: int) -> Examples:
        """The task's training examples that gradients are taken over."""
        if task_id not in self._tasks:
            raise UserError(
                f"received the end of task {task_id}, but the diagnostics know of the tasks "
                f"{', '.join(map(str, self._tasks))}: pass every task of the stream"
            )
        if self.subset is None:
            return self._tasks[task_id].train
        if task_id not in self._parts:
            random = generator(self.seed, DIAGNOSTICS, 0, task_id)
            self._parts[task_id] = _drawn(random, self._tasks[task_id].train, self.subset)
        return self._parts[task_id]

    def _test(self, task: Task) -> Examples:
        if self.subset is None:
            return task.test
        random = generator(self.seed, DIAGNOSTICS, 3, task.task_id)
        return _drawn(random, task.test, 5 * self.subset)


def _check_measurable(loss: ExampleLoss, inputs: Any) -> None:
    if not loss.takes_class_numbers:
        raise UserError(
            f"received {loss.name} for ForgettingDiagnostics, which draw memories by the classes "
            "of examples: expected a loss of class numbers, so leave the loss or the diagnostics "
            "out"
        )
    if not isinstance(inputs, np.ndarray):
        raise UserError(
            f"received inputs in a {type(inputs).__name__} for ForgettingDiagnostics, expected "
            "one array of inputs: join them into one, or leave the diagnostics out"
        )


def _drawn(random: np.random.Generator, examples: Examples, count: int) -> Examples:
    """So many examples, or all where there are fewer, in order."""
    total = len(examples.labels)
    return examples.take(np.sort(random.choice(total, min(count, total), replace=False)))


def _write_events(folder: Path, tasks: int, row: dict[str, Any]) -> None:
    scalars = {f"first_task/{k}": v for k, v in row["first_task"].items()}
    scalars |= {name: row[name] for name in ("gamma_raw", "gamma_surrogate")}
    if row["draws"] is not None:
        scalars["overfitting_mean"] = float(np.mean(row["draws"]["overfitting"]))
    with tf.summary.create_file_writer(str(folder)).as_default():
        for name, value in scalars.items():
            if value is not None:
                tf.summary.scalar(f"forgetting/{name}", value, step=tasks)
