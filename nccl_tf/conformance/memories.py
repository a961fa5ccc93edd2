"""`check_memory`: what every memory must do, each item on a class of a user's own."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.conformance.report import CheckReport, DiffersError, Item, run
from nccl_tf.conformance.trial import (
    BATCH,
    SEED,
    Examples,
    check_docstring,
    difference,
    frozen,
    rows_as_bytes,
    state_of,
    two_tasks,
)
from nccl_tf.learner.step import Logits
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.saving import load_model

_READ = 3


@keras.saving.register_keras_serializable(package="nccl_tf")
class Replayed(ExperienceReplay):
    """Experience replay that fills whatever columns a memory has, with a mean of the logits.

    Example:
        >>> memory = nccl_tf.ReservoirMemory(20, extras={"score": ((), "float32")})
        >>> learner = Replayed(nccl_tf.networks.mlp((4, 4, 1), 2), memory)
    """

    def store(self, batch: Batch, logits: Logits) -> None:
        mean, count = tf.reduce_mean(logits.raw, axis=1), tf.shape(logits.raw)[0]
        extras = {
            name: tf.cast(
                tf.broadcast_to(tf.reshape(mean, [-1, *(1,) * len(entry)]), [count, *entry]), dtype
            )
            for name, (entry, dtype) in self.memory.extras.items()
        }
        super().store(batch._replace(extras={**batch.extras, **extras}), logits)


class MemoryTrial:
    """A class of memories with all that it takes to make and fill one.

    Args:
        memory: The class.
        arguments: Arguments of the constructor.
        write: Writes a batch into a memory.
        tasks: Inputs and labels of two tasks, arrays; None for `two_tasks`.
    """

    def __init__(
        self,
        memory: type[Memory],
        arguments: Mapping[str, Any],
        write: Callable[[Any, Batch], None],
        tasks: Sequence[Examples] | None,
    ):
        self.memory, self.write = memory, write
        self.tasks = two_tasks() if tasks is None else list(tasks)
        self.arguments = dict(arguments)

    @property
    def classes(self) -> list[list[int]]:
        """The classes of each task."""
        return [np.unique(y).tolist() for _, y in self.tasks]

    def new(self) -> Memory:
        """A memory, allocated; `received` are arguments as they are and as they were."""
        parameters = inspect.signature(self.memory).parameters
        usual: dict[str, Any] = {
            "capacity": 6,
            "slots_per_class": 2,
            "task_classes": self.classes,
            "seed": SEED,
        }
        given = {name: value for name, value in usual.items() if name in parameters}
        given |= self.arguments
        before = frozen(given)
        memory = self.memory(**given)
        memory.build_for(self._batch(memory, 0, 0), task_classes=self.classes)
        self.unchanged = frozen(given) == before
        return memory

    def fill(self, memory: Memory) -> None:
        """Write the first task, close it, and write one batch of the second; the last of each
        three examples is padding."""
        for start in range(0, 3 * BATCH, BATCH):
            self.write(memory, self._batch(memory, 0, start))
        memory.close_task(0)
        self.write(memory, self._batch(memory, 1, 0))

    def go_on(self, memory: Memory) -> dict[str, np.ndarray]:
        """Write one batch more and read; what is read, and the state then."""
        self.write(memory, self._batch(memory, 1, BATCH))
        return {**self.columns(memory.read(_READ)), **values_of(memory)}

    def columns(self, batch: Batch) -> dict[str, np.ndarray]:
        """The columns of a batch by name."""
        parts = {f"inputs {i}": part for i, part in enumerate(tf.nest.flatten(batch.inputs))}
        parts |= {"labels": batch.labels, "tasks": batch.tasks, "weights": batch.weights}
        return {name: np.asarray(part) for name, part in {**parts, **batch.extras}.items()}

    @functools.cached_property
    def filled(self) -> Memory:
        """A memory amid the second task."""
        memory = self.new()
        self.fill(memory)
        return memory

    def first(self, memory: Memory) -> Batch:
        """The first batch of the first task."""
        return self._batch(memory, 0, 0)

    def padding(self, memory: Memory) -> Batch:
        """A batch of examples that count for nothing."""
        return self._batch(memory, 1, 0)._replace(weights=tf.zeros(BATCH))

    def _batch(self, memory: Memory, task: int, start: int) -> Batch:
        rows = slice(start, start + BATCH)
        inputs, labels = self.tasks[task]
        random = np.random.default_rng((task, start))
        extras = {
            name: tf.constant(random.normal(size=(BATCH, *entry)), dtype)
            for name, (entry, dtype) in memory.extras.items()
        }
        weights = np.arange(start, start + BATCH) % 3 < 2
        return Batch(
            tf.nest.map_structure(lambda part: tf.constant(part[rows]), inputs),
            tf.constant(labels[rows]),
            tf.fill([BATCH], tf.constant(task, tf.int64)),
            tf.constant(weights, tf.float32),
            extras,
        )


def check_memory(
    memory: type[Memory],
    *,
    arguments: Mapping[str, Any] | None = None,
    write: Callable[[Any, Batch], None] = Memory.write,
    tasks: Sequence[Examples] | None = None,
    items: Sequence[str] | None = None,
    raises: bool = True,
) -> CheckReport:
    """Check that a class of memories does what every memory must do.

    The items, and what holds:

    * `docstring`: the class has a docstring with an example, which runs;
    * `arguments`: the constructor leaves lists, dictionaries and arrays as they were;
    * `config`: `from_config(get_config())` has the same arguments, all of them, and variables of
      the same form;
    * `file`: from a file it has the same state, and writes and reads the same from then on, to the
      bit;
    * `equal_seeds`: equal seeds give equal bits;
    * `padding`: examples of weight 0 change nothing;
    * `memory_of_stream`: it holds examples that were written, no more than its capacity, and reads
      those, of an open task too where it says so (`reads_open_task`);
    * `graph`: what is written in a graph is what is written outside of it;
    * `add_classes`: new classes leave what is stored as it is;
    * `learner`: a learner that is saved amid a task with it takes the same next steps.

    A class may leave out three items at most, each by its reason in `cannot`.

    Args:
        memory: The class.
        arguments: Arguments of its constructor; None for six slots, or two for each class.
        write: Writes a batch into a memory, for one that is not written by `Memory.write`; it then
            needs reasons for `graph` and `learner`, where these have no meaning for it.
        tasks: Arrays of inputs [n, ...] and labels [n, ...] of two tasks, n >= 16; None for images
            [16, 4, 4, 1] in float32 of the classes 0 and 1, and 2 and 3.
        items: Names of the items to check; None for all.
        raises: Whether an item that fails is an error.

    Returns:
        The verdict on each item, "held", "excused" or "failed", with its reason.

    Raises:
        UserError: Items fail, each listed with what was received and what was expected; or there is
            no item of a name.

    Example:

    ```python
    report = nccl_tf.check_memory(nccl_tf.ReservoirMemory, arguments={"capacity": 5})
    print(report)  # a line for each item
    ```
    """
    trial = MemoryTrial(memory, arguments or {}, write, tasks)
    report = run(memory.__name__, ITEMS, items, trial, memory.cannot, {})
    if raises:
        report.refuse_failures()
    return report


def values_of(memory: Memory) -> dict[str, np.ndarray]:
    """The state of a memory by the names of its variables, but counters of random draws."""
    memory.blank_spare_row()
    return {v.name: v.numpy() for v in memory.variables if not v.name.endswith("draws")}


def _docstring(trial: MemoryTrial) -> None:
    check_docstring(trial.memory)


def _arguments(trial: MemoryTrial) -> None:
    _ = trial.filled
    if not trial.unchanged:
        raise DiffersError("changed values of the constructor's arguments", "them as they were")


def _config(trial: MemoryTrial) -> None:
    memory = trial.filled
    config = memory.get_config()
    if lost := set(inspect.signature(trial.memory).parameters) - set(config):
        raise DiffersError(
            f"a get_config without {', '.join(sorted(lost))}", "every argument of the constructor"
        )
    text = json.dumps(config)
    again = trial.memory.from_config(json.loads(text))
    if json.dumps(again.get_config()) != text:
        raise DiffersError("another configuration after from_config", "the same")
    forms = [[(v.name, tuple(v.shape), v.dtype) for v in m.variables] for m in (memory, again)]
    if forms[0] != forms[1]:
        raise DiffersError("other variables after from_config", "the same")


def _file(trial: MemoryTrial) -> None:
    memory = trial.filled
    store: dict[str, Any] = {}
    memory.save_variables(store, "memory_")
    again = trial.memory.from_config(json.loads(json.dumps(memory.get_config())))
    again.load_variables({name: np.copy(value) for name, value in store.items()}, "memory_")
    if said := difference(values_of(again), values_of(memory)):
        raise DiffersError(f"{said} in the loaded memory", "the state that was saved")
    if said := difference(trial.go_on(again), trial.go_on(memory)):
        raise DiffersError(f"{said} after the next batch", "equal bits")


def _equal_seeds(trial: MemoryTrial) -> None:
    one, other = trial.new(), trial.new()
    for memory in (one, other):
        trial.fill(memory)
    if said := difference(trial.go_on(one), trial.go_on(other)):
        raise DiffersError(f"{said} in a second run", "equal bits from equal seeds")


def _padding(trial: MemoryTrial) -> None:
    memory = trial.filled
    before = values_of(memory)
    trial.write(memory, trial.padding(memory))
    if said := difference(values_of(memory), before):
        raise DiffersError(f"{said} after a batch of weight 0", "all as it was before it")


def _memory_of_stream(trial: MemoryTrial) -> None:
    memory = trial.filled
    stored = memory.read_all()
    dtypes = [c.dtype for c in (*tf.nest.flatten(stored.inputs), stored.labels, stored.tasks)]
    known = [rows_as_bytes(*task, i, dtypes) for i, task in enumerate(trial.tasks)]
    kept = rows_as_bytes(stored.inputs, stored.labels, stored.tasks, dtypes)
    if strange := [row for row in kept if row not in {*known[0], *known[1]}]:
        raise DiffersError(
            f"{len(strange)} of {len(kept)} stored examples that were not written",
            "inputs, labels and tasks of what was",
        )
    if not 0 < len(kept) <= memory.capacity:
        raise DiffersError(f"{len(kept)} stored examples", f"1 to {memory.capacity}")
    read = memory.read(_READ)
    drawn = rows_as_bytes(read.inputs, read.labels, read.tasks, dtypes)
    drawn = [row for row, weight in zip(drawn, np.asarray(read.weights), strict=True) if weight]
    if not set(drawn) <= set(kept) or len(drawn) != min(_READ, len(kept)):
        raise DiffersError(
            f"{len(drawn)} examples of read({_READ})",
            f"{min(_READ, len(kept))} of those that are stored",
        )
    opened = trial.new()
    trial.write(opened, trial.first(opened))
    if opened.reads_open_task and not int(opened.readable_count()):
        raise DiffersError(
            "nothing to read of a task that is open, and True as reads_open_task",
            "a property reads_open_task that is False",
        )


def _graph(trial: MemoryTrial) -> None:
    one, other = trial.new(), trial.new()
    trial.fill(one)
    inside = MemoryTrial(
        trial.memory, trial.arguments, tf.function(trial.write, autograph=False), trial.tasks
    )
    inside.fill(other)
    if said := difference(values_of(other), values_of(one)):
        raise DiffersError(f"{said} written in a graph", "those written outside of it")


def _add_classes(trial: MemoryTrial) -> None:
    memory = trial.new()
    trial.fill(memory)
    before = trial.columns(memory.read_all())
    first = 1 + max(map(max, trial.classes))
    memory.add_classes([first, first + 1], memory.extras)
    if said := difference(trial.columns(memory.read_all()), before):
        raise DiffersError(f"{said} after add_classes", "what is stored as it was")


def _learner(trial: MemoryTrial) -> None:
    inputs, labels = trial.tasks[0]
    network = keras.Sequential(
        [keras.Input(inputs.shape[1:]), keras.layers.Flatten(), keras.layers.Dense(4)]
    )
    learner = Replayed(network, trial.new(), memory_batch_size=_READ)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    options: dict[str, Any] = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    learner.fit(inputs, labels, task_id=0, **options)
    inputs, labels = trial.tasks[1]
    learner.fit(inputs[:BATCH], labels[:BATCH], task_id=1, end_task=False, **options)
    with TemporaryDirectory() as folder:
        learner.save(Path(folder) / "learner.keras")
        loaded = load_model(Path(folder) / "learner.keras")
    for each in (learner, loaded):
        each.fit(inputs[BATCH:], labels[BATCH:], task_id=1, end_task=False, **options)
    if said := difference(state_of(loaded), state_of(learner)):
        raise DiffersError(f"{said} after the next step of a loaded learner", "equal bits")


ITEMS: dict[str, Item] = {
    "docstring": _docstring,
    "arguments": _arguments,
    "config": _config,
    "file": _file,
    "equal_seeds": _equal_seeds,
    "padding": _padding,
    "memory_of_stream": _memory_of_stream,
    "graph": _graph,
    "add_classes": _add_classes,
    "learner": _learner,
}
"""The items by their names, in the order in which they run."""
