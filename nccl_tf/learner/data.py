"""The data of a verb of a learner, in one form: what came is asked once, at the door."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import check_one_target, check_task_ids, split_inputs, take_rows
from nccl_tf.errors import UserError
from nccl_tf.keras_private import adapter_of
from nccl_tf.streams.batches import IndexedBatches
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.task import JointTask, Task
from nccl_tf.user_data import (
    ARRAYS,
    BATCHES,
    DATASET,
    SEQUENCE,
    as_columns,
    check_data,
    check_ends,
    class_names_of,
    form_of,
)

BATCH_SIZE, TEST_BATCH_SIZE, ARRAYS_BATCH_SIZE = 10, 500, 32
"""Examples in a batch of a task, of training and of test, and of arrays, where the user names no
number."""
FIRST = 100
"""Examples that are looked at before a training."""


class HostFacts(NamedTuple):
    """Facts of the examples of a `fit` that the host knows, so that no step computes them.

    Attributes:
        labels_checked: Whether labels, weights and tasks are right, those of padding too.
        has_weights: Whether weights other than 0 and 1 may come.
    """

    labels_checked: bool = False
    has_weights: bool = True


class FitData:
    """Examples as a verb of a learner received them, and what is known of them.

    Args:
        x: Arrays, `IndexedBatches`, a `tf.data.Dataset`, a `keras.utils.PyDataset`, or what
            delivers batches.
        y: Labels of arrays; None with others.
        weights: Of arrays; None for 1 each, and with others.

    Attributes:
        x, y, weights: In the form in which Keras takes them: arrays for data frames and Series,
            tuples for lists of arrays, tensors for text.
        form: One of the forms of `nccl_tf.user_data`.
        class_names: The names of the classes by number that the data tell; none of most.
        positive: The name of class 1 that a stream was told to judge; None of others.
        batch_size: Examples in a batch of arrays, as Keras takes it.
        task_id: The number of the task of a stream that came; None of other data.
        indexed: Batches that came with an order of their own, as a task's; None of other data.
        begin_epoch: Chooses their order, by the number of an epoch; None of other data.
        validation: The validation examples of that task; None where it has none.

    Raises:
        UserError: There are no data, they are known to be empty, masked, ragged, sparse, a data
            set of examples and not of batches, or with labels of several outputs; or a whole stream
            came.

    Example:

    ```python
    from nccl_tf.learner.data import FitData

    data = FitData(np.zeros((20, 4)), np.arange(20) % 2, batch_size=10)
    data.count()  # 2
    ```
    """

    task_id: int | None = None
    validation: Any = None

    def __init__(
        self, x: Any, y: Any = None, weights: Any = None, *, batch_size: int | None = None
    ):
        if isinstance(x, Stream):
            raise UserError(
                f"received the stream {x.name!r}: expected data of one task; learn all tasks with "
                "nccl_tf.learn(model, stream), or call fit for each task of the stream"
            )
        indexed = x if isinstance(x, IndexedBatches) else None
        if isinstance(x, tf.data.Dataset) and y is None and weights is None:
            # That of a task's batches knows what it is made of.
            indexed = getattr(x, "by_index", None)
        self.indexed: IndexedBatches | None = indexed
        self.begin_epoch = None if indexed is None else indexed.begin_epoch
        if indexed is not None:
            (x, y), batch_size = indexed.columns, indexed.size
        self.form = form_of(x)
        check_data(x, self.form)
        check_one_target(y)
        self.class_names, self.positive = tuple(class_names_of(x)), getattr(x, "positive", None)
        self.x = as_columns(x)
        self.y, self.weights = as_columns(y, "labels"), as_columns(weights, "sample_weight")
        self.batch_size = batch_size

    # ---- the doors of verbs --------------------------------------------------------------------

    @classmethod
    def of_fit(
        cls,
        x: Any,
        y: Any,
        weights: Any,
        *,
        batch_size: int | None,
        epochs: int,
        seed: int,
        **beside: Any,
    ) -> "FitData":
        """The data of `fit`; a task of a stream has another order in every epoch.

        Args:
            x: A task of a stream, or as for the class.
            y, weights, batch_size: As for the class; a task has batches of 10 by default.
            epochs: Passes over a task.
            seed: Seed of their orders.
            **beside: Further arguments that a task leaves no room for.

        Raises:
            UserError: A task comes with something else, a number is below 1, or as for the class.
        """
        if not _is_task(x):
            return cls(x, y, weights, batch_size=batch_size)
        _refuse_beside_task(y=y, sample_weight=weights, **beside)
        data = cls(x.epochs(batch_size or BATCH_SIZE, seed, epochs))
        data.task_id, data.validation = x.task_id, x.validation
        return data._named_by(x)

    @classmethod
    def of_test(
        cls, x: Any, y: Any = None, weights: Any = None, *, batch_size: int | None = None
    ) -> "FitData":
        """The data of `evaluate`; of a task of a stream the batches of its test examples.

        Raises:
            UserError: A task comes with labels or weights, tasks are joined, the batch size is
                below 1, or as for the class.
        """
        if not _is_task(x):
            return cls(x, y, weights, batch_size=batch_size)
        _refuse_beside_task(y=y, sample_weight=weights)
        _check_is_one(x, "test")
        return cls(x.tested(batch_size or TEST_BATCH_SIZE))._named_by(x)

    @classmethod
    def of_arrays(cls, x: Any, y: Any = None, weights: Any = None, part: str = "test") -> "FitData":
        """The data of a verb that takes arrays; of a task of a stream the examples of a part.

        Args:
            x: A task, or as for the class.
            y, weights: As for the class.
            part: "test" or "train".

        Raises:
            UserError: A task comes with labels or weights, tasks are joined, or as for the class.
        """
        if not _is_task(x):
            return cls(x, y, weights)
        _refuse_beside_task(y=y, sample_weight=weights)
        _check_is_one(x, part)
        data = cls(*getattr(x, part))
        data.task_id = x.task_id
        return data._named_by(x)

    def _named_by(self, task: Any) -> "FitData":
        """The same data, with the names that the stream of a task has for its classes."""
        self.class_names, self.positive = task.class_names, task.positive
        return self

    @classmethod
    def of_validation(cls, given: Any, batch_size: int | None) -> "FitData":
        """The validation data of `fit`: of any form, or a tuple of arrays.

        Args:
            given: As `fit` received them.
            batch_size: Examples in a batch of arrays, or of a task.

        Raises:
            UserError: A tuple has other parts, or as for `of_test`.
        """
        if not isinstance(given, (tuple, list)):
            return cls.of_test(given, batch_size=batch_size)
        if not 1 <= len(given) <= 3:
            raise UserError(
                f"received validation data of {len(given)} parts, expected (inputs, labels) or "
                "(inputs, labels, weights)"
            )
        return cls(*given, batch_size=batch_size)

    def check_ends(self) -> None:
        """Check that the data have an end, as far as they say, where all of them are read.

        Raises:
            UserError: They have none.
        """
        if self.form in (DATASET, SEQUENCE):
            check_ends(self.x)

    # ---- what is known of them -----------------------------------------------------------------

    @property
    def columns(self) -> tuple[Any, ...]:
        """x, y and weights, as far as there are some."""
        count = 3 if self.weights is not None else 1 if self.y is None else 2
        return (self.x, self.y, self.weights)[:count]

    @property
    def inputs(self) -> Any:
        """Arrays of inputs, or their specification in a dataset; of other forms the data."""
        if self.form != DATASET:
            return self.x
        spec = self.x.element_spec
        return spec[0] if isinstance(spec, tuple) else spec

    @property
    def names_tasks(self) -> bool:
        """Whether the inputs are known to name the task of each example."""
        inputs = self.inputs
        return isinstance(inputs, dict) and "inputs" in inputs and inputs.get("task") is not None

    @property
    def may_name_tasks(self) -> bool:
        """Whether inputs may name tasks: they do, or are not shown before they are delivered."""
        return self.names_tasks or self.form in (SEQUENCE, BATCHES)

    @property
    def shuffles(self) -> bool:
        """Whether Keras can shuffle them, which warns where it cannot."""
        return self.y is not None or self.form == SEQUENCE

    @property
    def all_inputs(self) -> Any:
        """All inputs, where the host has them; None elsewhere."""
        return split_inputs(self.x)[0] if self.form == ARRAYS else None

    def tasks(self, default: Any) -> Any:
        """The task of each example where the host has it, else the default.

        Raises:
            UserError: They are no integers, or not one for each example.
        """
        if self.form != ARRAYS or not self.names_tasks:
            return default
        check_task_ids(self.x["task"])
        return self.x["task"]

    @property
    def label_spec(self) -> tf.TensorSpec | None:
        """The labels as [n, ...]; None where they are not known before they are delivered."""
        labels = self.y
        if self.form == DATASET:
            parts = self.x.element_spec
            labels = parts[1] if isinstance(parts, tuple) and len(parts) > 1 else None
        shape = getattr(labels, "shape", None)
        if shape is None or not isinstance(labels, (tf.TensorSpec, tf.Tensor, np.ndarray)):
            return None
        shape = tf.TensorShape(shape)
        return tf.TensorSpec(shape, tf.as_dtype(labels.dtype)) if shape.rank else None

    def known(self) -> HostFacts:
        """The facts that hold once all labels, tasks and weights that the host has were checked."""
        # Examples of weight 0 may have any label, and lists are left to Keras.
        if not isinstance(self.y, (np.ndarray, tf.Tensor)):
            return HostFacts()
        checked = self.weights is None or bool(np.all(np.asarray(self.weights) > 0))
        return HostFacts(checked, has_weights=not checked or self.weights is not None)

    def size(self, steps: int | None = None) -> int:
        """Examples in a batch of arrays.

        Args:
            steps: Of an epoch, as `fit` and `evaluate` received them.
        """
        count = len(tf.nest.flatten(self.x)[0])
        return self.batch_size or (math.ceil(count / steps) if steps else ARRAYS_BATCH_SIZE)

    def count(self, steps: int | None = None) -> int | None:
        """How many batches there are in a pass; None where it is not known.

        Args:
            steps: As for `size`.
        """
        if self.indexed is not None:
            return self.indexed.count
        if self.form == DATASET:
            count = int(self.x.cardinality())
            return count if count >= 0 else None
        if self.form == SEQUENCE:
            return self.x.num_batches
        if self.form == BATCHES:
            return None
        return math.ceil(len(tf.nest.flatten(self.x)[0]) / self.size(steps))

    def first(self, needed: bool) -> Any:
        """A first batch, eager; None where none can be had without losing it.

        Args:
            needed: Whether a memory waits for shapes, for which a dataset is read, and a generator
                goes on with the batch that was taken.
        """
        if self.form == BATCHES:
            return self._first_of_generator() if needed else None
        if self.form == DATASET:
            return next(iter(self.x), None) if needed else None
        if self.y is None:
            return self.x[0] if self.form == SEQUENCE else None
        if not all(getattr(part, "shape", None) for part in tf.nest.flatten(self.columns)):
            return None
        return tf.nest.map_structure(lambda part: tf.convert_to_tensor(part[:FIRST]), self.columns)

    def _first_of_generator(self) -> Any:
        batches = self.x
        if not isinstance(batches, Iterator):
            return None
        first = next(batches, None)

        def again() -> Iterator[Any]:
            if first is not None:
                yield first
            yield from batches

        self.x = again()  # Keras takes generators alone
        return first

    # ---- the same data otherwise ---------------------------------------------------------------

    def batches(self, shuffle: bool = False, steps: int | None = None) -> IndexedBatches | None:
        """The batches of examples that the host has; None of other data.

        Args:
            shuffle: Whether arrays come in another order in each reading, of NumPy's global draws,
                which `keras.utils.set_random_seed` seeds.
            steps: As for `size`.
        """
        if self.indexed is not None:
            return self.indexed
        parts = tf.nest.flatten(self.columns)
        at_hand = (isinstance(part, (np.ndarray, tf.Tensor)) and part.shape for part in parts)
        # What is none, or has other lengths, Keras refuses.
        if self.form != ARRAYS or not all(at_hand) or len(set(map(len, parts))) > 1:
            return None
        count, size = len(parts[0]), self.size(steps)

        def order(_: int) -> tuple[np.ndarray, ...]:
            # As Keras's own iterators over arrays draw it.
            return (np.random.permutation(count) if shuffle else np.arange(count),)

        columns = tf.nest.map_structure(_in_floatx, self.columns)
        return IndexedBatches(columns, size, count, order)

    def for_keras(
        self, alone: bool, shuffle: bool = False, steps: int | None = None
    ) -> dict[str, Any]:
        """The data as arguments of Keras's verbs.

        Args:
            alone: Whether one device takes the steps; Keras shares out datasets to replicas.
            shuffle, steps: As for `batches`.
        """
        batches = self.batches(shuffle, steps)
        if alone and batches is not None:
            return {"x": adapter_of(batches)}
        if self.indexed is not None:
            return {"x": self.indexed.dataset(changes=True)}
        weights, size = self.weights, self.batch_size
        return {"x": self.x, "y": self.y, "sample_weight": weights, "batch_size": size}

    def split(self, share: float) -> tuple["FitData", "FitData"]:
        """Arrays in two parts, as Keras has it: to train on, and the last ones to validate on.

        Args:
            share: Of those to validate on, in (0, 1).

        Raises:
            UserError: The data are no arrays, or a part would be empty.
        """
        if self.form != ARRAYS or self.indexed is not None:
            raise UserError(
                f"received validation_split={share} and {type(self.x).__name__}, of which nothing "
                "can be split off: give validation_data"
            )
        count = len(tf.nest.flatten(self.x)[0])
        trained = math.floor(count * (1 - share))
        if not 0 < trained < count:
            raise UserError(
                f"received validation_split={share} of {count} examples, which leaves a part "
                "empty: give a share such as 0.1, or validation_data"
            )
        parts = copy.copy(self), copy.copy(self)
        for part, rows in zip(parts, (slice(trained), slice(trained, None)), strict=True):
            part.x, part.y, part.weights = (
                None if column is None else take_rows(column, rows)
                for column in (self.x, self.y, self.weights)
            )
        return parts

    def with_task(self, task_id: int) -> "FitData":
        """The same data, whose inputs name the task of every example."""

        def named(inputs: Any) -> dict[str, Any]:
            count = tf.shape(tf.nest.flatten(inputs)[0])[0]
            return {"inputs": inputs, "task": tf.fill([count], tf.constant(task_id, tf.int64))}

        data = copy.copy(self)
        if self.form == ARRAYS:
            count = len(tf.nest.flatten(self.x)[0])
            data.x = {"inputs": self.x, "task": np.full(count, task_id, np.int64)}
        elif self.form == SEQUENCE:
            data.x = _NamedBatches(self.x, named)
        elif self.form == BATCHES:
            data.x = ((named(batch[0]), *batch[1:]) for batch in self.x)
        elif isinstance(self.x.element_spec, tuple):
            data.x = self.x.map(lambda inputs, *rest: (named(inputs), *rest))
        else:
            data.x = self.x.map(named)
        return data


def _in_floatx(column: Any) -> Any:
    """A column of arrays with its floats in Keras's `floatx`, as Keras takes them."""
    kind, floatx = tf.as_dtype(column.dtype), tf.as_dtype(keras.config.floatx())
    if not kind.is_floating or kind == floatx:
        return column
    is_tensor = isinstance(column, tf.Tensor)
    return tf.cast(column, floatx) if is_tensor else column.astype(floatx.as_numpy_dtype)


def _is_task(x: Any) -> bool:
    """Whether a verb received a task of a stream, or the union of several."""
    return isinstance(x, (Task, JointTask))


def _refuse_beside_task(**beside: Any) -> None:
    """Refuse arguments that a task leaves no room for.

    Raises:
        UserError: One is given.
    """
    for name, value in beside.items():
        if value is not None:
            raise UserError(
                f"received a task of a stream and {name}=...: a task has labels, weights and test "
                f"examples itself; leave {name} out, or give arrays, such as fit(*task.train, ...)"
            )


def agreed_names(names: tuple[str, ...], *data: FitData) -> tuple[str, ...]:
    """The names of classes by number, of earlier data and of data sets that tell theirs.

    Args:
        names: Those so far.
        data: Further data.

    Raises:
        UserError: Data sets give one number to two classes, as folders of other classes do.
    """
    for told in (part.class_names for part in data):
        for number, (one, other) in enumerate(zip(names, told, strict=False)):
            if one != other:
                raise UserError(
                    f"received a data set whose class {number} is {other!r}, and that of earlier "
                    f"data is {one!r}: expected one number for each class; make a stream, "
                    "nccl_tf.stream_from_datasets([(train, test), ...]), which numbers the classes "
                    "of all its data sets together"
                )
        names = max(names, told, key=len)
    return names


def _check_is_one(task: Any, part: str) -> None:
    if isinstance(task, JointTask):
        raise UserError(
            f"received a JointTask, which has no {part} examples of its own: expected one of its "
            "tasks, each of `joint.tasks`"
        )


class _NamedBatches(keras.utils.PyDataset):
    """The batches of another one, whose inputs name their task."""

    def __init__(self, batches: keras.utils.PyDataset, named: Callable[[Any], Any]):
        super().__init__()
        self._batches, self._named = batches, named

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Any:
        batch = self._batches[index]
        if not isinstance(batch, tuple):
            return self._named(batch)
        return self._named(batch[0]), *batch[1:]
