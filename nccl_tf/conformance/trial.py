"""The trial of a class: two tasks of a few examples, a small network and a memory."""

import contextlib
import copy
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import take_rows
from nccl_tf.conformance.report import DiffersError
from nccl_tf.learner.execution import LOGGER
from nccl_tf.learner.learner import Learner
from nccl_tf.memories.kinds import get_memory
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.reservoir import ReservoirMemory

BATCH = 4
SEED = 3
_SHAPE = (4, 4, 1)
_COUNT = 16
_COUNTERS = ("skipped", "skipped_in_a_row")
_IN_FLOAT64 = (
    'this item makes networks that compute in float64, by Keras\'s policy "float64": give '
    "constants and casts the dtype of the logits in place of float32"
)
Examples = tuple[Any, Any]


def two_tasks() -> list[Examples]:
    """Two tasks of two classes each: images [16, 4, 4, 1] in which a pixel of the class is 1."""
    random = np.random.default_rng(0)
    tasks = []
    for classes in ((0, 1), (2, 3)):
        labels = random.choice(classes, _COUNT)
        images = random.uniform(0, 0.2, (_COUNT, *_SHAPE)).astype(np.float32)
        images.reshape(_COUNT, -1)[np.arange(_COUNT), labels] = 1
        tasks.append((images, labels))
    return tasks


class LearnerTrial:
    """A class of learners with all that it takes to make and teach one.

    Learners run eagerly, which needs no trace, and begin with equal weights of the network.

    Args:
        learner: The class.
        network, memory, optimizer: Functions that make a new one; None for a small one. For a
            memory also the name of its kind.
        loss: As for `compile`.
        tasks: Inputs and labels of two tasks, arrays; None for `two_tasks`.
        arguments: Further arguments of the constructor.
    """

    def __init__(
        self,
        learner: type[Learner],
        network: Callable[[], keras.Model] | None,
        memory: Callable[[], Memory] | str | None,
        optimizer: Callable[[], keras.optimizers.Optimizer] | None,
        loss: Any,
        tasks: Sequence[Examples] | None,
        arguments: Mapping[str, Any],
    ):
        self.learner = learner
        self.tasks = two_tasks() if tasks is None else list(tasks)
        self.arguments = dict(arguments)
        self._network = network or self._dense
        self._memory = memory if callable(memory) else lambda: self._small(memory)
        self._optimizer = optimizer or (lambda: keras.optimizers.SGD(0.1))
        self._loss = {} if loss is None else {"loss": loss}
        self._first: dict[str, list[np.ndarray]] = {}
        self.received: list[tuple[Any, Any]] = []

    @property
    def has_classes(self) -> bool:
        """Whether labels are the numbers of classes."""
        return all(y.dtype.kind in "iu" and y.ndim == 1 for _, y in self.tasks)

    @property
    def classes(self) -> list[list[int]]:
        """The classes of each task."""
        return [np.unique(y).tolist() for _, y in self.tasks]

    def new(self, heads: Any = None, **compile_arguments: Any) -> Learner:
        """A learner, compiled; `received` are arguments as they are and as they were."""
        given: dict[str, Any] = dict(self.arguments)
        parameters = inspect.signature(self.learner).parameters
        if "seed" in parameters:
            given.setdefault("seed", SEED)
        if heads is not None:
            given["heads"] = heads
        self.received = [(value, frozen(value)) for value in (given, *self.tasks)]
        if self.learner.memory_class is not None:
            given = {"memory": self._memory(), **given}
        learner = self.learner(self._same_network(), **given)
        options = {"run_eagerly": True, **self._loss, **compile_arguments}
        learner.compile(self._optimizer(), **options)
        return learner

    def fit(self, learner: Learner, task: int, first: int = 0, last: int | None = None) -> Any:
        """Learn a task, in the order of its examples; with `last`, to there and leave it open.

        Returns:
            The logs by name, of the last epoch.
        """
        x, y = self.rows(task, first, last)
        history = learner.fit(
            x, y, batch_size=BATCH, shuffle=False, verbose=0, task_id=task, end_task=last is None
        )
        return {name: values[-1] for name, values in history.history.items()}

    def rows(self, task: int, first: int = 0, last: int | None = None) -> Examples:
        """Some examples of a task."""
        x, y = self.tasks[task]
        rows = np.arange(len(y))[first:last]
        return take_rows(x, rows), y[rows]

    @functools.cached_property
    def learned(self) -> Learner:
        """A learner amid the second task."""
        learner = self.new()
        self.logs = [self.fit(learner, 0), self.fit(learner, 1, last=2 * BATCH)]
        self.state = state_of(learner)
        self.unchanged = [frozen(value) == before for value, before in self.received]
        return learner

    def _same_network(self) -> keras.Model:
        network, policy = self._network(), keras.config.dtype_policy().name
        if policy not in self._first:
            self._first[policy] = [v.numpy() for v in network.variables]
        for variable, value in zip(network.variables, self._first[policy], strict=True):
            variable.assign(value)
        return network

    def _dense(self) -> keras.Model:
        shape = self.tasks[0][0].shape[1:]
        classes = 1 + max(map(max, self.classes))
        layers = [keras.layers.Dense(8, "relu"), keras.layers.Dense(classes)]
        return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), *layers])

    def _small(self, kind: str | None) -> Memory:
        """A memory of a kind, or without one of the class's `memory_class`."""
        if kind is not None and (self.has_classes or not get_memory(kind).memory_class().by_class):
            sizes: dict[str, Any] = {"capacity": 6, "slots": 2, "rule": "exact", "seed": SEED}
            return get_memory(kind).build(task_classes=self.classes, **sizes)
        made = self.learner.memory_class
        assert made is not None
        made = ReservoirMemory if made is Memory else made
        sizes = {"capacity": 6, "slots_per_class": 2, "task_classes": self.classes, "seed": SEED}
        return made(**{n: v for n, v in sizes.items() if n in inspect.signature(made).parameters})


def state_of(learner: Learner) -> dict[str, np.ndarray]:
    """All state of a learner but what counts steps that it skipped and random draws."""
    network = learner.network
    weights = {id(weight) for weight in network.weights}
    random = {id(v) for v in network.variables} - weights
    return {
        name: variable.numpy()
        for name, variable in learner.state_variables.items()
        if id(variable) not in random
        and variable.name not in _COUNTERS
        and not variable.name.endswith("draws")
    }


def difference(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> str:
    """Which of the arrays of two states differ, in words; "" where none does.

    They are compared in order: slots of optimizers are named after their networks.
    """
    if len(found) != len(expected):
        return f"{len(found)} variables for {len(expected)}"
    pairs = zip(expected.items(), found.values(), strict=True)
    names = [name for (name, value), other in pairs if not _same(value, other)]
    return f"other values of {', '.join(names)}" if names else ""


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    is_float = one.dtype.kind == "f" and other.dtype == one.dtype
    return np.array_equal(one, other, equal_nan=is_float)


@contextlib.contextmanager
def in_float64() -> Any:
    """Networks that the body makes compute in float64, and an error of the body says so."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    try:
        yield
    except Exception as error:
        error.add_note(_IN_FLOAT64)
        raise
    finally:
        keras.config.set_dtype_policy(before)


@contextlib.contextmanager
def without_warnings() -> Any:
    """A context in which learners log nothing, where the body asks for what they warn of."""
    before, LOGGER.disabled = LOGGER.disabled, True
    try:
        yield
    finally:
        LOGGER.disabled = before


def frozen(value: Any) -> Any:
    """A value in a form that compares its containers and arrays, and other objects by identity."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return {key: frozen(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value), *map(frozen, value)]
    return copy.copy(value) if isinstance(value, (set, frozenset)) else value


def as_dataset(x: Any, y: Any) -> tf.data.Dataset:
    """Batches in the order of the examples."""
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def check_docstring(cls: type) -> None:
    """A class has a docstring of its own with an example, which runs among its module's names."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    fenced = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    typed = re.findall(r"^ *(?:>>>|\.\.\.) ?(.*)$", text, re.MULTILINE)
    code = [textwrap.dedent(block) for block in fenced] or ["\n".join(typed)]
    if not any(code):
        shown = "no docstring" if not text else "a docstring without an example"
        raise DiffersError(shown, "one with code in ```python or after >>>")
    names = dict(vars(sys.modules.get(cls.__module__, nccl_tf)))
    names |= {"keras": keras, "nccl_tf": nccl_tf, "np": np, "tf": tf, cls.__name__: cls}
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in code:
            exec(block, names)  # noqa: S102 (code of the class that is asked about)


def rows_as_bytes(inputs: Any, labels: Any, tasks: Any, dtypes: Sequence[Any]) -> list[bytes]:
    """Examples as bytes, in the dtypes of a memory's columns.

    Args:
        inputs: [n, ...], or several of them.
        labels: [n, ...].
        tasks: The task of each, [n], or of all.
        dtypes: Of each input, the labels and the tasks.
    """
    columns = [*tf.nest.flatten(inputs), labels, np.broadcast_to(tasks, len(labels))]
    columns = [np.asarray(c, dtype) for c, dtype in zip(columns, dtypes, strict=True)]
    return [b"|".join(c[i].tobytes() for c in columns) for i in range(len(labels))]
