"""`check_learner`: what every learner must do, each item on a class of a user's own."""

import contextlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, take_rows
from nccl_tf.conformance.report import CheckReport, DiffersError, Item, run
from nccl_tf.conformance.trial import (
    BATCH,
    Examples,
    LearnerTrial,
    as_dataset,
    check_docstring,
    difference,
    in_float64,
    rows_as_bytes,
    state_of,
    without_warnings,
)
from nccl_tf.device_file.export import check_exports, export_learner
from nccl_tf.errors import UserError
from nccl_tf.keras_private import layers_of
from nccl_tf.learner.learner import Learner
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.registry import METHODS
from nccl_tf.saving import load_model
from nccl_tf.variables import blank_like

_CHUNK = 3


def check_learner(
    learner: type[Learner],
    *,
    arguments: Mapping[str, Any] | None = None,
    network: Callable[[], keras.Model] | None = None,
    memory: Callable[[], Memory] | None = None,
    optimizer: Callable[[], keras.optimizers.Optimizer] | None = None,
    loss: Any = None,
    tasks: Sequence[Examples] | None = None,
    items: Sequence[str] | None = None,
    raises: bool = True,
) -> CheckReport:
    """Check that a class of learners does what every learner must do.

    The items, and what holds:

    * `docstring`: the class has a docstring with an example, which runs;
    * `arguments`: `fit` and the constructor leave lists, dictionaries and arrays as they were;
    * `config`: `from_config(get_config())` has the same arguments, all of them, and variables of
      the same form;
    * `file`: saved amid a task and loaded, it has the same state and takes the same next steps, to
      the bit;
    * `equal_seeds`: equal seeds give equal bits;
    * `datasets`: arrays and a `tf.data.Dataset` of the same batches give equal bits;
    * `skipped_step`: a batch with NaN changes no weight, no memory and no state of the method;
    * `padding`: rows of weight 0, in the stream batch and in what is read of the memory, change no
      weight, whatever they hold and however many they are;
    * `memory_of_stream`: the memory holds examples of the stream and nothing else, and some were
      written into it, though it may be empty once a task has ended;
    * `logs`: a step logs the names of `log_names`, "loss" first, which is finite;
    * `add_classes`: new classes leave the logits of the old ones as they were, and are learned; all
      state is then as large as that of a learner made with them;
    * `heads`: with a head per task, an example is answered by the head of its task;
    * `predictions`: an example is predicted alone as among others, whatever these are;
    * `serving_model`: `serving_model` answers as `predict` does;
    * `jit_compile`: chunks of steps under XLA, and a rest, learn what single steps learn;
    * `export_learner`: a file of `nccl_tf.export_learner` takes its steps in LiteRT, where the
      extra `device` is installed.

    A class may leave out three items at most, each by its reason in `cannot`, under the item's
    name; of `add_classes`, `heads`, `serving_model`, `jit_compile` and `export_learner` the learner
    then refuses what it cannot do.

    Args:
        learner: The class.
        arguments: Arguments of its constructor beside network and memory, those with values other
            than their defaults show more; None for `trial` of the class's row, if it has one.
        network: A function that makes the network, a new one at each call; None for a dense one of
            eight units.
        memory: A function that makes the memory; None for one of the kind that the class's row
            names, or without a row of its `memory_class`, with six slots, or two for each class.
        optimizer: A function that makes the optimizer; None for SGD with the rate 0.1.
        loss: As for `compile`; None for its default.
        tasks: Arrays of inputs [n, ...] and labels [n, ...] of two tasks, n >= 16; None for images
            [16, 4, 4, 1] in float32 of the classes 0 and 1, and 2 and 3. Without floats among the
            inputs, a weight NaN stands for a batch with NaN.
        items: Names of the items to check; None for all.
        raises: Whether an item that fails is an error.

    Returns:
        The verdict on each item, "held", "excused" or "failed", with its reason.

    Raises:
        UserError: Items fail, each listed with what was received and what was expected; or there is
            no item of a name.

    Example:

    ```python
    report = nccl_tf.check_learner(nccl_tf.DERpp, items=["file", "logs"])
    print(report)  # a line for each item
    ```
    """
    row = next((row for row in METHODS.values() if row.is_of(learner)), None)
    if arguments is None:
        arguments = row.trial if row else {}
    kind = row.memory if row else None
    trial = LearnerItems(learner, network, memory or kind, optimizer, loss, tasks, arguments)
    excuses = {name: reason for name in ITEMS if (reason := learner.why_not(name))}
    report = run(learner.__name__, ITEMS, items, trial, excuses, _REFUSALS)
    if raises:
        report.refuse_failures()
    return report


class LearnerItems(LearnerTrial):
    """The items that a class of learners is asked for, a method each, on what its trial made."""

    def check_docstring(self) -> None:
        """The class has a docstring with an example, which runs."""
        check_docstring(self.learner)

    def check_arguments(self) -> None:
        """Containers and arrays that it received are as they were."""
        _ = self.learned
        names = (
            "the constructor's arguments",
            "the first task's arrays",
            "the second task's arrays",
        )
        changed = [name for name, same in zip(names, self.unchanged, strict=True) if not same]
        if changed:
            raise DiffersError(
                f"changed values of {' and '.join(changed)}", "them as they were given"
            )

    def check_config(self) -> None:
        """The configuration has all arguments and makes a learner of the same form."""
        learner = self.learned
        config = learner.get_config()
        if lost := set(inspect.signature(self.learner).parameters) - set(config):
            raise DiffersError(
                f"a get_config without {', '.join(sorted(lost))}",
                "every argument of the constructor",
            )
        text = json.dumps(config)
        again = self.learner.from_config(json.loads(text))
        if json.dumps(again.get_config()) != text:
            raise DiffersError("another configuration after from_config", "the same")
        _check_forms(learner.variables, again.variables)

    def check_file(self) -> None:
        """A loaded learner goes on as the one that was saved."""
        learner = self.learned
        with TemporaryDirectory() as folder:
            path = Path(folder) / "learner.keras"
            learner.save(path)
            loaded = load_model(path)
        if said := difference(state_of(loaded), state_of(learner)):
            raise DiffersError(f"{said} in the loaded learner", "the state that was saved")
        for each in (learner, loaded):
            self.fit(each, 1, first=2 * BATCH, last=3 * BATCH)
        if said := difference(state_of(loaded), state_of(learner)):
            raise DiffersError(f"{said} after the next step of the loaded learner", "equal bits")

    def check_equal_seeds(self) -> None:
        """Equal seeds give equal bits."""
        _ = self.learned
        again = self.new()
        self.fit(again, 0)
        self.fit(again, 1, last=2 * BATCH)
        if said := difference(state_of(again), self.state):
            raise DiffersError(f"{said} in a second run", "equal bits from equal seeds")

    def check_datasets(self) -> None:
        """A dataset gives the bits of arrays."""
        _ = self.learned
        learner = self.new()
        learner.fit(as_dataset(*self.rows(0)), verbose=0, task_id=0)
        batches = as_dataset(*self.rows(1, last=2 * BATCH))
        learner.fit(batches, verbose=0, task_id=1, end_task=False)
        if said := difference(state_of(learner), self.state):
            raise DiffersError(f"{said} from a dataset", "the bits from arrays")

    def check_skipped_step(self) -> None:
        """A batch with NaN changes nothing but the count of skipped steps."""
        learner, (x, y) = self.learned, self.rows(1, last=BATCH)
        floats = [part for part in tf.nest.flatten(x) if np.issubdtype(part.dtype, np.floating)]
        weights = np.ones(len(y), np.float32)
        for part in floats:
            part[0] = np.nan
        if not floats:
            weights[0] = np.nan
        before, skipped = state_of(learner), int(learner.progress.skipped.numpy())
        batches = tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(BATCH)
        with (
            without_warnings(),
            contextlib.nullcontext() if floats else contextlib.suppress(UserError),
        ):
            learner.fit(batches, verbose=0, task_id=1, end_task=False)
        if said := difference(state_of(learner), before):
            raise DiffersError(f"{said} after a batch with NaN", "all as it was before it")
        if int(learner.progress.skipped.numpy()) != skipped + 1:
            raise DiffersError(
                "a step that is not counted as skipped", "skipped one more than before"
            )

    def check_padding(self) -> None:
        """Rows of weight 0 leave no trace in the step, whatever they hold and however many."""
        with in_float64():
            plain = self._learned_beside_padding(0, 0)
            cases = ((2, 0), (2, 1), (3, 1)) if plain else ()
            padded = [self._learned_beside_padding(*case) for case in cases]
        for (rows, _), values in zip(cases, padded, strict=True):
            for (name, value), other in zip(plain.items(), values.values(), strict=True):
                if not np.allclose(other, value, rtol=1e-6, atol=1e-9):
                    raise DiffersError(
                        f"other values of {name} after a step with {rows} rows of weight 0 more",
                        "equal ones, because these are padding: take weighted_mean in place of "
                        "reduce_mean",
                    )

    def _learned_beside_padding(self, rows: int, content: int) -> dict[str, np.ndarray]:
        """Floats of a learner after one step of the second task; none where rows are not apart.

        Args:
            rows: Rows of weight 0 that the stream batch and each read of the memory have more.
            content: Chooses what they hold.
        """
        learner = self.new()
        layers = layers_of(learner.network, include_self=True)
        random = len(learner.network.variables) > len(learner.network.weights)
        if random or any(isinstance(each, keras.layers.BatchNormalization) for each in layers):
            return {}  # Statistics are of all rows, and draws of as many.
        self.fit(learner, 0, last=2 * BATCH)
        learner.end_task()
        for memory in learner.memories():
            _pad_reads(memory, rows, content)
        x, y = self.rows(1, last=BATCH)
        more_x, more_y = self.rows(1, BATCH + 2 * content, BATCH + 2 * content + rows)
        x = tf.nest.map_structure(lambda *parts: np.concatenate(parts), x, more_x)
        weights = np.repeat(np.array([1, 0], np.float32), [len(y), rows])
        batch = (x, np.concatenate([y, more_y]), weights)
        batches = tf.data.Dataset.from_tensor_slices(batch).batch(len(weights))
        learner.fit(batches, verbose=0, task_id=1, end_task=False)
        return {v.name: v.numpy() for v in learner.variables if v.dtype.startswith("float")}

    def check_memory_of_stream(self) -> None:
        """All that is stored is of the tasks."""
        learner = self.learned
        for memory in learner.memories() if learner.memory is not None else ():
            stored = memory.read_all()
            # A slot keeps its bytes when a memory forgets it; no example leaves all of them blank.
            memory.blank_spare_row()
            slots = [part.numpy() for part in (*tf.nest.flatten(memory.inputs), memory.labels)]
            if memory is learner.memory and all(np.array_equal(s, blank_like(s)) for s in slots):
                raise DiffersError(
                    "a memory that nothing was written into",
                    "examples of the stream: call super().after_step(batch, step) in an "
                    "`after_step` of your own, which stores them",
                )
            columns = [*tf.nest.flatten(stored.inputs), stored.labels, stored.tasks]
            dtypes = [column.dtype for column in columns]
            known = [rows_as_bytes(*task, number, dtypes) for number, task in enumerate(self.tasks)]
            kept = rows_as_bytes(stored.inputs, stored.labels, stored.tasks, dtypes)
            if strange := [row for row in kept if row not in {*known[0], *known[1]}]:
                raise DiffersError(
                    f"{len(strange)} of {len(kept)} stored examples that no task has",
                    "inputs, labels and tasks of the stream",
                )

    def check_logs(self) -> None:
        """Steps log what the class declares."""
        _ = self.learned
        names = self.learner.log_names
        for logs in self.logs:
            if set(logs) != set(names):
                raise DiffersError(f"logs {sorted(logs)}", f"those of log_names, {sorted(names)}")
            if not np.isfinite(logs["loss"]):
                raise DiffersError(f"loss={logs['loss']}", "a finite number")
        if names[0] != "loss" or not set(self.learner.cumulative) <= set(names):
            raise DiffersError(
                f"log_names={names} and cumulative={self.learner.cumulative}",
                '"loss" first, and cumulative among them',
            )

    def check_add_classes(self) -> None:
        """Old logits stay, new classes are learned."""
        if not self.has_classes:
            return
        learner, x = self.new(), self.tasks[0][0]
        self.fit(learner, 0)
        before, count = learner.predict(x, verbose=0), learner.num_classes
        learner.add_classes(2)
        after = learner.predict(x, verbose=0)
        if after.shape[1] != count + 2:
            raise DiffersError(f"{after.shape[1]} logits", f"{count + 2} after add_classes(2)")
        if not np.allclose(after[:, :count], before, rtol=1e-5, atol=1e-6):
            raise DiffersError("other logits of the classes before", "them as they were")
        x, y = self.rows(1)
        learner.fit(
            x, count + np.arange(len(y)) % 2, batch_size=BATCH, verbose=0, task_id=len(self.tasks)
        )
        seen = learner.progress.seen_classes.numpy()
        if not seen[count:].all() or not np.isfinite(learner.predict(x, verbose=0)).all():
            raise DiffersError(
                "new classes that are not learned", "finite logits, and them as seen"
            )
        again = self.learner.from_config(learner.get_config())
        _check_forms(learner.variables, again.variables)

    def check_heads(self) -> None:
        """Each head answers for its task."""
        if not self.has_classes:
            return
        learner = self.new(heads=[list(classes) for classes in self.classes])
        self.fit(learner, 0)
        self.fit(learner, 1, last=BATCH)
        for number, (x, _) in enumerate(self.tasks):
            logits = learner.predict(x, verbose=0, task_id=number)
            own = np.isin(np.arange(logits.shape[1]), self.classes[number])
            if not np.isfinite(logits[:, own]).all():
                raise DiffersError(f"logits of task {number} that are not finite", "finite ones")
            if np.max(logits[:, ~own]) >= np.min(logits[:, own]):
                raise DiffersError(
                    f"logits of other heads among those of task {number}", "them below its own"
                )

    def check_predictions(self) -> None:
        """An example is predicted alone as among others: a batch at test tells nothing of it."""
        learner, (x, _) = self.learned, self.rows(0, last=2 * BATCH)
        count = len(tf.nest.flatten(x)[0])
        among = learner.predict(x, batch_size=count, verbose=0)
        for what, rows in {
            "alone": np.arange(1),
            "beside copies of it": np.zeros(BATCH, int),
        }.items():
            found = learner.predict(take_rows(x, rows), batch_size=BATCH, verbose=0)[0]
            if not np.allclose(found, among[0], rtol=1e-3, atol=1e-4):
                raise DiffersError(
                    f"outputs of an example {what} that differ by "
                    f"{np.max(np.abs(found - among[0])):.3g} from those among others",
                    "the same, because a test batch must tell nothing of an example; let no "
                    "statistic of a batch into `outputs`",
                )

    def check_serving_model(self) -> None:
        """`serving_model` answers as `predict` does."""
        learner, x = self.learned, self.tasks[0][0]
        expected = learner.predict(x, verbose=0)
        found = learner.serving_model().predict(x, verbose=0)
        if not np.allclose(found, expected, rtol=1e-5, atol=1e-5):
            raise DiffersError(
                f"outputs that differ by {np.max(np.abs(found - expected)):.3g}", "those of predict"
            )

    def check_jit_compile(self) -> None:
        """Chunks learn what single steps learn."""
        states, finest = [], 1e-6
        with in_float64():
            for options in ({}, {"run_eagerly": False, "jit_compile": True}):
                learner = self.new(steps_per_execution=_CHUNK if options else 1, **options)
                self.fit(learner, 0)
                states.append(state_of(learner))
            if learner.network.compute_dtype != "float64":
                finest = 1e-3
        for (name, one), other in zip(states[0].items(), states[1].values(), strict=True):
            atol = (
                finest * max(np.max(np.abs(one), initial=0), 1e-3) if one.dtype.kind == "f" else 0
            )
            if not (np.array_equal(one, other) if not atol else np.allclose(other, one, 0, atol)):
                raise DiffersError(f"other values of {name} under XLA", "those of single steps")

    def check_export_learner(self) -> None:
        """A file learns what the learner does; its export compares them."""
        if importlib.util.find_spec("ai_edge_litert") is None:
            return
        learner = self.new(run_eagerly=False)
        self.fit(learner, 0)
        with TemporaryDirectory() as folder:
            export_learner(learner, Path(folder) / "learner.tflite", batch_size=BATCH)


def _pad_reads(memory: Memory, count: int, content: int) -> None:
    """Let reads of a memory have more rows of weight 0, and other contents in all of these."""
    rows = memory.rows

    def padded_rows(slots: tf.Tensor, weights: tf.Tensor) -> Batch:
        batch = rows(slots, weights)
        if not content:
            return batch

        def first_in_padding(part: tf.Tensor) -> tf.Tensor:
            shape = [-1, *(1,) * (part.shape.rank - 1)]
            return tf.where(tf.reshape(batch.weights > 0, shape), part, part[:1])

        return batch.map(first_in_padding)._replace(weights=batch.weights)

    def padded_read(wanted: int) -> Batch:
        slots, weights = memory.draw(wanted, memory.next_seed())
        more = tf.repeat(slots[content : content + 1], count)
        none = tf.zeros(count, weights.dtype)
        return padded_rows(tf.concat([slots, more], 0), tf.concat([weights, none], 0))

    # Past `__setattr__`, which keeps the methods of a memory.
    object.__setattr__(memory, "rows", padded_rows)
    object.__setattr__(memory, "read", padded_read)


def _check_forms(before: Sequence[keras.Variable], after: Sequence[keras.Variable]) -> None:
    forms = [[(v.name, v.shape, v.dtype) for v in each] for each in (before, after)]
    if forms[0] != forms[1]:
        other = [str(a[0]) for a, b in zip(*forms, strict=False) if a != b]
        raise DiffersError(f"other variables after from_config: {', '.join(other)}", "the same")


def _refused(what: str, ask: Callable[[], Any]) -> None:
    try:
        ask()
    except UserError:
        return
    raise DiffersError(f"a learner that takes {what}", "a refusal, as its `cannot` has a reason")


ITEMS: dict[str, Item] = {
    "docstring": LearnerItems.check_docstring,
    "arguments": LearnerItems.check_arguments,
    "config": LearnerItems.check_config,
    "file": LearnerItems.check_file,
    "equal_seeds": LearnerItems.check_equal_seeds,
    "datasets": LearnerItems.check_datasets,
    "skipped_step": LearnerItems.check_skipped_step,
    "padding": LearnerItems.check_padding,
    "memory_of_stream": LearnerItems.check_memory_of_stream,
    "logs": LearnerItems.check_logs,
    "add_classes": LearnerItems.check_add_classes,
    "heads": LearnerItems.check_heads,
    "predictions": LearnerItems.check_predictions,
    "serving_model": LearnerItems.check_serving_model,
    "jit_compile": LearnerItems.check_jit_compile,
    "export_learner": LearnerItems.check_export_learner,
}
"""The items by their names, in the order in which they run."""
_REFUSALS: dict[str, Item] = {
    "add_classes": lambda trial: _refused("add_classes", lambda: trial.new().add_classes(1)),
    "heads": lambda trial: _refused("heads", lambda: trial.new(heads=trial.classes)),
    "serving_model": lambda trial: _refused("serving_model()", trial.learned.serving_model),
    "jit_compile": lambda trial: _refused(
        "jit_compile", lambda: trial.new(run_eagerly=False, jit_compile=True)
    ),
    "export_learner": lambda trial: _refused(
        "export_learner", lambda: check_exports(trial.learned)
    ),
}
