"""The base of the replay memories: columns of examples, their slots, reads and writes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.attributes import check_attribute, check_private_names
from nccl_tf.arguments.constructor_arguments import ConstructorArguments, restored
from nccl_tf.arguments.constructors import refuse_unknown, show_arguments
from nccl_tf.batch import Batch
from nccl_tf.byte_strings import join_strings, split_strings
from nccl_tf.class_weights import ClassWeights
from nccl_tf.errors import UserError, checked_seed
from nccl_tf.machine import total_memory
from nccl_tf.memories.forms import (
    Forms,
    check_rows,
    column_of,
    dtype_of,
    fitting,
    input_specs,
    shape_of,
)
from nccl_tf.rng import sample_without_replacement, seeded, with_argument
from nccl_tf.variables import bytes_of, pack_bytes, read_rows, resize, unpack_bytes, write_rows


@dataclass
class _Base:
    """The private state of a memory, apart from the attributes of its subclasses.

    Attributes:
        arguments: Of the constructor, as they were given.
        forms: Of inputs and labels; None until they are known.
        inputs: Their columns.
        stores: bool scalar, whether examples that come are stored; None until it is allocated.
        class_weights: By which examples that are read weigh; None where all weigh 1.
    """

    arguments: ConstructorArguments
    forms: Any = None
    inputs: list[keras.Variable] = field(default_factory=list)
    stores: Any = None
    class_weights: ClassWeights | None = None


class Memory:
    """Slots for inputs, labels and task ids; a subclass says which slots to write and to read.

    The state is variables of fixed shape, which a learner saves and resumes beside its weights.
    Writing and reading touch the rows of one batch, whatever the capacity; one row more than the
    capacity takes the examples that get no slot, and is blank in files. Without `example_shape` it
    is allocated for the first batch of the first `fit`.

    Args:
        capacity: Number of slots; None where `build_for` will know.
        example_shape: Shape of one example, such as (height, width, channels); a dictionary or a
            tuple of shapes for several inputs; None for the shapes and dtypes of the examples and
            labels that the first `fit` delivers.
        example_dtype: dtype of the stored inputs, or one for each of them; the stream must deliver
            it.
        seed: Seed of the memory's random draws.
        extras: Further columns by name, each with the shape of one entry and its dtype, such as
            {"logits": ((10,), "float32")}; a batch that is written has to carry them, and one that
            is read does.
        label_shape: Shape of one label, () for a class number.
        label_dtype: dtype of the labels.

    Attributes:
        variables: All state, in the order in which it was made.

    Raises:
        UserError: The capacity is below 1, or an argument is unknown.
    """

    by_class: ClassVar[bool] = False
    """Whether it keeps examples by their class, so that labels have to be classes."""
    takes_batches: ClassVar[bool] = True
    """Whether `write` chooses slots, where a method does not say itself what is kept."""
    cannot: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Why the memory cannot do what others can, by the item of `nccl_tf.check_memory`."""
    capacity: Final[int]
    seed: Final[int]
    extras: dict[str, Any]
    variables: Final[list[keras.Variable]]
    columns: dict[str, keras.Variable]
    labels: keras.Variable
    tasks: keras.Variable
    draws: keras.Variable
    _base: _Base
    _owns_private_names: ClassVar[bool] = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """A memory that is not made yet, with the arguments of its constructor."""
        memory = super().__new__(cls)
        memory._base = _Base(ConstructorArguments(cls, args, kwargs))
        return memory

    def __init__(
        self,
        capacity: int | None,
        example_shape: Any = None,
        example_dtype: Any = "uint8",
        seed: int = 0,
        *,
        extras: Mapping[str, tuple[Sequence[int], str]] | None = None,
        label_shape: Sequence[int] = (),
        label_dtype: str = "int64",
        **unknown: Any,
    ):
        refuse_unknown(type(self), unknown)
        is_count = isinstance(capacity, (int, np.integer)) and capacity >= 1
        if capacity is not None and not is_count:
            raise UserError(
                f"received a memory of {capacity!r} slots, expected a whole number of at least 1: "
                "name capacity in Python, --memory or --memory_per_class at the command"
            )
        self.capacity = None if capacity is None else int(capacity)  # type: ignore[assignment]
        self.seed = with_argument(checked_seed(seed))
        self.extras = {name: (tuple(s), dtype) for name, (s, dtype) in (extras or {}).items()}
        self._base.arguments.replace({"extras": extras}, self._extras_as_argument())
        self.variables = []
        if example_shape is not None:
            labels = tf.TensorSpec([int(side) for side in label_shape], label_dtype)
            forms = self._allocate(input_specs(example_shape, example_dtype), labels)
            received = {
                "example_shape": example_shape, "example_dtype": example_dtype,
                "label_shape": label_shape, "label_dtype": label_dtype,
            }  # fmt: skip
            self._base.arguments.replace(received, forms.config())

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, unless it would take the place of one of the base, or is made once.

        Raises:
            UserError: It would.
        """
        check_attribute(self, name, value)
        super().__setattr__(name, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        check_private_names(cls)
        super().__init_subclass__(**kwargs)
        show_arguments(cls, Memory)

    def make_state(self) -> None:
        """Make the variables of a subclass; called once, after those of the columns."""

    def build_for(
        self,
        batch: Batch,
        extras: Mapping[str, tuple[Sequence[int], str]] | None = None,
        task_classes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Allocate the memory for examples such as a batch's, where it was built without a shape.

        Args:
            batch: Examples, as they will be written.
            extras: Further columns beside those of the constructor, as it takes them; one of the
                same name takes the place of its.
            task_classes: The classes of each task, where they are known.

        Raises:
            UserError: The examples have no fixed shape.
        """
        if not self.is_allocated:
            self.change_extras({**self.extras, **(extras or {})})
            forms = self._allocate(*tf.nest.map_structure(column_of, batch[:2]))
            self._base.arguments.follow({"example_shape": None}, forms.config())

    @property
    def is_allocated(self) -> bool:
        """Whether shapes and dtypes of the examples are known."""
        return self._base.forms is not None

    @property
    def example_shape(self) -> Any:
        """Shape of one example, or of each of its inputs; None until it is known."""
        return shape_of(self._base.forms.inputs) if self.is_allocated else None

    @property
    def example_dtype(self) -> Any:
        """dtype of the stored inputs, or of each of them; None until it is known."""
        return dtype_of(self._base.forms.inputs) if self.is_allocated else None

    @property
    def inputs(self) -> Any:
        """The variable that holds the inputs, or those that hold each of them.

        Raises:
            UserError: Nothing is allocated.
        """
        self.check_allocated()
        return self._base.forms.together(self._base.inputs)

    def check_allocated(self) -> None:
        """Check that the memory has columns.

        Raises:
            UserError: It was built without a shape, and no `fit` has come yet.
        """
        if not self.is_allocated:
            raise UserError(
                f"received a {type(self).__name__} that was built without shapes and has seen no "
                "fit, so that it holds nothing: fit its learner first, or name example_shape"
            )

    def rows(self, slots: tf.Tensor, weights: tf.Tensor) -> Batch:
        """The contents of slots (int64 [n]) as a batch with the given weights (float32 [n]).

        Within a `fit` with `class_weight` these are multiplied by the weights of the classes.
        """
        self.check_allocated()
        parts = [read_rows(column, slots) for column in self._base.inputs]
        for i, form in self._base.forms.packed.items():
            parts[i] = unpack_bytes(parts[i], form.shape)
        labels = read_rows(self.labels, slots)
        if self._base.class_weights is not None:
            weights *= self._base.class_weights.of(labels)
        return Batch(
            inputs=self._base.forms.together(parts),
            labels=labels,
            tasks=read_rows(self.tasks, slots),
            weights=weights,
            extras={name: read_rows(column, slots) for name, column in self.columns.items()},
        )

    @property
    def specs(self) -> Batch:
        """The forms of a batch that is written, `tf.TensorSpec`s with None for its size."""
        self.check_allocated()

        def rows(form: tf.TensorSpec) -> tf.TensorSpec:
            return tf.TensorSpec([None, *form.shape], form.dtype)

        inputs, labels = tf.nest.map_structure(
            rows, (self._base.forms.inputs, self._base.forms.labels)
        )
        tasks, weights = (rows(tf.TensorSpec([], dtype)) for dtype in (tf.int64, tf.float32))
        return Batch(inputs, labels, tasks, weights)

    def place(self, batch: Batch, slots: tf.Tensor) -> None:
        """As `put`, into slots that are distinct but for `capacity`.

        Raises:
            UserError: As for `put`.
        """
        batch = self.checked(batch)
        if unknown := sorted(batch.extras.keys() - self.columns.keys()):
            raise UserError(
                f"received a batch with the extras {unknown}, for which the {type(self).__name__} "
                f"has no columns beside {sorted(self.columns)}, so that they would be lost: "
                "declare them in the learner's columns, name them in the memory's extras, or leave "
                "them out of the batch"
            )
        parts = tf.nest.flatten(batch.inputs)
        for i in self._base.forms.packed:
            parts[i] = pack_bytes(parts[i])
        columns = [*self._base.inputs, self.labels, self.tasks]
        for column, rows in zip(columns, [*parts, batch.labels, batch.tasks], strict=True):
            write_rows(column, slots, rows)
        for name, column in self.columns.items():
            if name not in batch.extras:
                raise UserError(
                    f"received a batch with the extras {sorted(batch.extras)}, but the memory "
                    f"stores {sorted(self.columns)}: pass batch._replace(extras={{...}})"
                )
            write_rows(column, slots, tf.cast(batch.extras[name], column.dtype))

    def state_of_form(self) -> list[Any]:
        """The objects whose attributes a growing head changes, for `HeadGrowth` to put back."""
        return [self, self._base, self._base.arguments]

    def blank_spare_row(self) -> None:
        """Blank the row that examples without a slot were written into, so that states compare."""
        if self.is_allocated:
            for column in (*self._base.inputs, self.labels, self.tasks, *self.columns.values()):
                row = tf.zeros([1, *column.shape[1:]], column.dtype)  # of text "", of bool False
                write_rows(column, tf.constant([self.capacity], tf.int64), row)

    def set_stores(self, stores: bool) -> None:
        """Choose whether examples that come from now on are stored, or nothing of them.

        `Learner.fit` does so where an epoch begins. It is no state: outside of a `fit` a memory
        stores what comes.

        Args:
            stores: Whether they are.
        """
        if self._base.stores is not None:
            self._base.stores.assign(stores)

    def weigh_by(self, class_weights: ClassWeights) -> None:
        """Let examples that are read weigh what their classes do, by labels as they are stored.

        Args:
            class_weights: Those of the learner, which says when they weigh alike.
        """
        self._base.class_weights = class_weights

    def grow_labels(self, classes: int) -> None:
        """Let labels that are one-hot rows have so many classes, those that are stored too."""
        resize(self.labels, (*self.labels.shape[:-1], classes))
        labels = tf.TensorSpec(self.labels.shape[1:], self._base.forms.labels.dtype)
        before, self._base.forms = self._base.forms, Forms(self._base.forms.inputs, labels)
        self._base.arguments.follow(before.config(), self._base.forms.config())

    def writable(self, batch: Batch) -> Batch:
        """A batch in the form in which it can be written: each input fills a slot of its column.

        A shorter one would be written into a part of the slot. Where the graph does not know their
        shape, what follows from the weights waits for a look at it, so that the memory stays as it
        is where a batch does not fit. While the memory stores nothing, all weights are 0.

        Raises:
            UserError: The memory was built without shapes and has seen no fit.
        """
        self.check_allocated()
        if not isinstance(batch, Batch):
            raise UserError(
                f"received a {type(batch).__name__} to write, expected a nccl_tf.Batch: store "
                "arrays with learner.remember(inputs, labels)"
            )
        # Columns of integers are int64; those of a batch made by hand may be narrower.
        if tf.as_dtype(batch.labels.dtype).is_integer and self._base.forms.labels.dtype == tf.int64:
            batch = batch._replace(labels=tf.cast(batch.labels, tf.int64))
        batch = batch._replace(tasks=tf.cast(batch.tasks, tf.int64))
        batch = self.checked(batch)
        with tf.control_dependencies([*tf.nest.flatten(batch.inputs), batch.labels]):
            weights = tf.where(self._base.stores.value, batch.weights, 0.0)
        return batch._replace(weights=weights)

    def checked(self, batch: Batch) -> Batch:
        """A batch whose examples fit into the columns.

        A graph that does not know their shape looks at it when it runs, before anything uses them;
        `fit` raises then.

        Raises:
            UserError: Inputs or labels are not of the memory's dtype and shape.
        """
        forms = self._base.forms
        check_rows("inputs", batch.inputs, forms.inputs, "example")
        check_rows("labels", batch.labels, forms.labels, "label")
        parts = zip(tf.nest.flatten(batch.inputs), forms.flat, strict=True)
        inputs = forms.together([fitting(part, form) for part, form in parts])
        return batch._replace(inputs=inputs, labels=fitting(batch.labels, forms.labels))

    def save_variables(self, store: Any, prefix: str) -> None:
        """Save the state; inputs are saved as inputs, also where they are held packed.

        Args:
            store: Takes arrays by name.
            prefix: Of their names.
        """
        self.blank_spare_row()
        packed = self._packed()
        for variable in self.variables:
            name, value = prefix + variable.name, variable.numpy()
            form = packed.get(variable.name)
            if variable.dtype == "string":
                store[name], store[f"{name}_bytes"] = join_strings(value)
            else:
                store[name] = value if form is None else unpack_bytes(value, form.shape).numpy()

    def load_variables(self, store: Any, prefix: str) -> None:
        """Load the state that `save_variables` saved.

        Args:
            store: Arrays by name; those that are loaded are taken out.
            prefix: Of their names.

        Raises:
            UserError: The state is that of a memory of another size or shape, or one of its counts
                is below 0.
        """
        packed, counts = self._packed(), set(map(id, counts_of(self)))
        for variable in self.variables:
            name = prefix + variable.name
            value = np.asarray(store.pop(name))
            if variable.dtype == "string":
                value = split_strings(value, np.asarray(store.pop(f"{name}_bytes")))
            elif variable.name in packed:
                value = pack_bytes(tf.constant(value)).numpy()
            if value.shape != tuple(variable.shape):
                raise UserError(
                    f"received a saved memory whose {variable.name} have the shape {value.shape} "
                    f"for a {type(self).__name__} of {self.capacity} slots, which has "
                    f"{tuple(variable.shape)}: build the memory as it was saved"
                )
            if id(variable) in counts and value < 0:
                raise UserError(
                    f"received a saved memory whose {variable.name} is {value}, expected a count "
                    "of 0 or more: get the file again"
                )
            variable.assign(value)

    def describe(self) -> str:
        """Its class, slots and size, in a line."""
        size = "not allocated before the first fit"
        if self.is_allocated:
            size = f"{bytes_of(self.variables):,} bytes"
        return f"{type(self).__name__}, {self.capacity} slots, {size}"

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor as they were given, for saving.

        Shapes, dtypes, extras and classes are the current ones, which the first fit and new
        classes may have changed.

        Raises:
            UserError: Keras cannot write one of them, or the constructor takes no argument for one
                of those.
        """
        return self._base.arguments.config()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A memory from `get_config`."""
        return restored(cls, config)

    def change_extras(self, extras: Mapping[str, tuple[Sequence[int], str]]) -> None:
        """Have other further columns than the constructor received.

        Args:
            extras: All of them, as the constructor takes them.
        """
        if self.extras == extras:
            return
        before = self._extras_as_argument()
        self.extras = {name: (tuple(entry), dtype) for name, (entry, dtype) in extras.items()}
        self._base.arguments.follow(before, self._extras_as_argument())

    def _extras_as_argument(self) -> dict[str, Any]:
        extras = {name: [list(entry), dtype] for name, (entry, dtype) in self.extras.items()}
        return {"extras": extras or None}

    def _allocate(self, inputs: Any, labels: tf.TensorSpec) -> Forms:
        self._base.forms = Forms(inputs, labels)
        rows = self.capacity + 1
        self._base.inputs = self._base.forms.variables(rows, self.state)
        self.labels = self.state("labels", (rows, *labels.shape), labels.dtype.name)
        self.tasks = self.state("tasks", (rows,), "int64")
        self.draws = self.state("draws", (), "int64")
        # On the device, so that one graph serves all epochs; none of `variables`, because a `fit`
        # that resumes says itself what it stores.
        self._base.stores = keras.Variable(
            True, dtype="bool", trainable=False, autocast=False, name="stores"
        )
        self.columns = {
            name: self.state(name, (rows, *entry), dtype)
            for name, (entry, dtype) in self.extras.items()
        }
        self.make_state()
        return self._base.forms

    def state(self, name: str, shape: Sequence[int], dtype: str) -> keras.Variable:
        """A variable of zeros that belongs to the state.

        Args:
            name: Its name.
            shape: Its shape.
            dtype: Its dtype.

        Raises:
            UserError: The memory has a variable of that name, or the machine no room for one.
        """
        if any(variable.name == name for variable in self.variables):
            raise UserError(
                f"received {name!r} as the name of a second variable of a {type(self).__name__}, "
                "whose file keeps one under each: give it another name"
            )
        self._check_room(shape, dtype)
        try:
            variable = keras.Variable(
                lambda shape, dtype: tf.zeros(shape, dtype), shape=tuple(shape),
                dtype=dtype, trainable=False, autocast=False, name=name,
            )  # fmt: skip
        except tf.errors.ResourceExhaustedError as error:  # of a GPU too
            raise self._lacks_room(shape, dtype) from error
        self.variables.append(variable)
        return variable

    def _check_room(self, shape: Sequence[int], dtype: str) -> None:
        """Refuse a variable that makes the memory larger than the machine's.

        Linux would give it, and kill the process when it is written.
        """
        sizes = [_bytes(v.shape, v.dtype) for v in self.variables]
        if sum(sizes) + _bytes(shape, dtype) > total_memory():
            raise self._lacks_room(shape, dtype)

    def _lacks_room(self, shape: Sequence[int], dtype: str) -> UserError:
        return UserError(
            f"received a {type(self).__name__} of {self.capacity:,} slots, of which one part takes "
            f"{_bytes(shape, dtype) / 1e9:,.1f} GB, and this machine has "
            f"{total_memory() / 1e9:,.1f} GB: take fewer slots"
        )

    def _packed(self) -> dict[str, tf.TensorSpec]:
        """The forms of packed columns by the names of their variables."""
        if not self.is_allocated:
            return {}
        return {self._base.inputs[i].name: form for i, form in self._base.forms.packed.items()}

    def next_seed(self) -> tf.Tensor:
        """int64 [2]: the seed of the memory's next random draw."""
        self.check_allocated()
        return seeded(self.seed, self.draws.value.assign_add(1))

    @property
    def reads_open_task(self) -> bool:
        """Whether `read` can be counted on for examples of the open task too."""
        return True

    def readable_count(self) -> tf.Tensor:
        """int64 scalar: how many stored examples `read` draws from."""
        raise self._lacks("readable_count()")

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        """int64 [n]: the slots of the readable examples number `positions`."""
        raise self._lacks("readable_slots(positions)")

    def slots_for(self, batch: Batch) -> tf.Tensor:
        """int64 [n]: the slot that each example of a batch goes to; `capacity` where to none.

        Two examples may name one slot. Counters are advanced.
        """
        raise self._lacks("slots_for(batch)")

    def _lacks(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} is no whole memory: define {method}, as ReservoirMemory does"
        )

    def close_task(self, task_id: int) -> None:
        """Mark a task as finished. Calling it again for the same task changes nothing.

        A file for a device has it as graph code, with an int64 scalar as the task.
        """
        del task_id

    def add_classes(
        self, classes: Sequence[int], extras: Mapping[str, tuple[Sequence[int], str]]
    ) -> None:
        """Make room for new classes; see `Learner.add_classes`. Nothing stored changes.

        Args:
            classes: Their numbers.
            extras: The further columns from now on, by name; new entries of what is stored are 0.
        """
        del classes
        kept = {
            name: (_filled(entry, self.extras[name][0]), dtype)
            for name, (entry, dtype) in extras.items()
            if name in self.extras
        }
        self.change_extras({**self.extras, **kept})
        for name, (entry, _) in kept.items() if self.is_allocated else ():
            resize(self.columns[name], (self.capacity + 1, *entry))

    def read(self, count: int) -> Batch:
        """Draw uniformly without replacement.

        Args:
            count: Number of rows of the result.

        Returns:
            A batch of `count` rows. Where fewer examples are stored, all of them, repeated to fill
            the rows, with weight 1 on each once and 0 on the repetitions; all weights are 0 where
            the memory is empty.
        """
        return self.rows(*self.draw(count, self.next_seed()))

    def read_all(self) -> Batch:
        """All examples that `read` draws from, each once, as NumPy arrays.

        Returns:
            A batch of `readable_count` rows in the order of their slots, with inputs, labels, tasks
            and extras.

        Raises:
            UserError: It was built without shapes and has seen no fit.

        Example:

        ```python
        images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)
        memory = nccl_tf.ReservoirMemory(20)
        learner = nccl_tf.ExperienceReplay(nccl_tf.networks.mlp((8, 8, 1), 4), memory)
        learner.compile(keras.optimizers.SGD(0.1))
        learner.fit(images, np.arange(40) % 4, verbose=0)
        print(np.bincount(memory.read_all().labels))  # how many of each class
        ```
        """
        self.check_allocated()
        count = self.readable_count()
        slots = self.readable_slots(tf.range(count))
        ones = tf.ones(tf.shape(slots))
        return self.rows(slots, ones)._replace(weights=ones).map(lambda part: part.numpy())

    def upcoming(self, count: int) -> Batch:
        """The examples that the next `read(count)` returns, without drawing them."""
        self.check_allocated()
        return self.rows(*self.draw(count, seeded(self.seed, self.draws.value + 1)))

    def draw(self, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The slots (int64 [count]) and weights (float32 [count]) of what `read` returns.

        Args:
            count: Number of slots.
            seed: int64 [2], never the same twice.
        """
        positions, weights = choose(self.readable_count(), count, seed)
        return self.readable_slots(positions), weights

    def write(self, batch: Batch) -> None:
        """Offer a batch to the memory, example by example in its order.

        Args:
            batch: Examples; those of weight 0 are ignored.

        Raises:
            UserError: Inputs or labels are not of the memory's dtype and shape, the batch has other
                extras than the memory has columns for, or it was built without shapes and has seen
                no fit.
        """
        batch = self.writable(batch)
        self.put(batch, self.kept_slots_for(batch))

    def kept_slots_for(self, batch: Batch) -> tf.Tensor:
        """As `slots_for`, with `capacity` for padding too.

        The extras that have columns come in the dtypes of these, so that they compare.
        """
        extras = {
            name: tf.cast(value, self.columns[name].dtype) if name in self.columns else value
            for name, value in batch.extras.items()
        }
        slots = self.slots_for(batch._replace(extras=extras))
        return tf.where(batch.weights > 0, slots, self.capacity)

    def put(self, batch: Batch, slots: tf.Tensor) -> None:
        """Write a batch into slots.

        Args:
            batch: Examples.
            slots: int64 [n]; `capacity` for nowhere. Of equal slots the last one is written.

        Raises:
            UserError: Inputs or labels are not of the memory's dtype and shape, or the batch has
                other extras than the memory has columns for.
        """
        self.place(batch, keep_last(slots, self.capacity))


show_arguments(Memory, Memory)


def counts_of(memory: Memory) -> list[keras.Variable]:
    """A memory's scalars of whole numbers, which only rise in a class of the package."""
    is_own = type(memory).__module__.startswith("nccl_tf.")
    scalars = [variable for variable in memory.variables if len(variable.shape) == 0]
    return [variable for variable in scalars if is_own and variable.dtype == "int64"]


def choose(stored: tf.Tensor, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Positions of the examples that a read returns: `count` of them, or all and repetitions.

    Args:
        stored: int64 scalar, how many there are.
        count: Number of rows of the result.
        seed: int64 [2], never the same twice.

    Returns:
        Positions int64 [count], and weights float32 [count], 0 for repetitions.
    """
    index, stored = tf.range(count, dtype=tf.int64), tf.convert_to_tensor(stored)  # read once
    drawn = sample_without_replacement(seed, tf.maximum(stored, count), count)
    repeated = tf.math.floormod(index, tf.maximum(stored, 1))
    return tf.where(stored > count, drawn, repeated), tf.cast(index < stored, tf.float32)


def keep_last(slots: tf.Tensor, nowhere: int) -> tf.Tensor:
    """Send all but the last of equal slots to `nowhere`, so that a scatter has no order to choose.

    Args:
        slots: int64 [n].
        nowhere: The number that stands for no slot.

    Returns:
        int64 [n], distinct but for `nowhere`.
    """
    index = tf.range(tf.shape(slots)[0])
    same = tf.equal(slots[:, None], slots)
    later = tf.less(index[:, None], index[None, :])
    repeated = tf.reduce_any(tf.logical_and(same, later), axis=-1)
    return tf.where(tf.logical_not(repeated), slots, nowhere)


def _filled(entry: Sequence[Any], now: Sequence[int]) -> tuple[Any, ...]:
    """The sides of an entry, those that are not known as they are now."""
    return tuple(old if side is None else side for side, old in zip(entry, now, strict=True))


def _bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a variable; for strings, of their pointers alone."""
    return math.prod(shape) * tf.as_dtype(dtype).size
