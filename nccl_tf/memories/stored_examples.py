"""The columns in which a memory holds examples: variables of fixed shape, written in place."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.constructors import NoArguments, refuse_unknown, show_arguments
from nccl_tf.batch import Batch
from nccl_tf.byte_strings import join_strings, split_strings
from nccl_tf.errors import UserError, check_seed
from nccl_tf.memories.columns import (
    Forms,
    check_rows,
    check_shape,
    column_of,
    dtype_of,
    input_specs,
    shape_of,
)
from nccl_tf.memories.disk import DiskInputs
from nccl_tf.variables import (
    pack_bytes,
    read_rows,
    resize,
    unpack_bytes,
    write_rows,
)


class StoredExamples(keras.layers.Layer):
    """Slots for inputs, labels, task ids and further columns; `Memory` says which are used.

    The state is non-trainable variables, allocated once, so that it travels with the weights of the
    model that holds the memory. Writing and reading touch the rows of one batch, whatever the
    capacity; one row more than the capacity stands for no slot, and is not written. Without
    `example_shape` it is allocated for the first batch of the first `fit`.

    The arguments are those of `Memory`.
    """

    def __init__(
        self,
        capacity: int | None,
        example_shape: Any = None,
        example_dtype: Any = "uint8",
        seed: int = 0,
        *,
        extras: Mapping[str, tuple[Sequence[int], str]] | None = None,
        label_shape: Sequence[int] = (),
        label_dtype: str = "int32",
        memory_dir: str | None = None,
        name: str | None = None,
        **unknown: Unpack[NoArguments],
    ):
        refuse_unknown(type(self), unknown)
        super().__init__(trainable=False, name=name)
        is_count = isinstance(capacity, (int, np.integer)) and capacity >= 1
        if capacity is not None and not is_count:
            raise UserError(
                f"received a memory of {capacity!r} slots, expected a whole number of at least 1: "
                "name capacity in Python, --memory_size or --memory_per_class at the command"
            )
        self.capacity: Any = None if capacity is None else int(capacity)
        self.seed = check_seed(seed)
        self.extras = {name: (tuple(s), dtype) for name, (s, dtype) in (extras or {}).items()}
        self.memory_dir = None if memory_dir is None else str(memory_dir)
        self.disk: DiskInputs | None = None
        self._input_columns: list[keras.Variable] = []
        self._forms: Any = None
        self.labels: Any = None
        self.built = True
        if self.memory_dir is not None:
            self.check_memory_dir()
        if example_shape is not None:
            labels = tf.TensorSpec([int(side) for side in label_shape], label_dtype)
            self._allocate(input_specs(example_shape, example_dtype), labels)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        show_arguments(cls, StoredExamples)

    def make_state(self) -> None:
        """Make the variables of a subclass; called once, after those of the columns."""

    def check_memory_dir(self) -> None:
        """Raise UserError where the inputs cannot lie in a file: by default nowhere they can."""
        raise UserError(
            f"received memory_dir={self.memory_dir!r} for a {type(self).__name__}, whose examples "
            "have to be at hand in every step: take a RingMemory, or a ReservoirMemory without "
            "exclude_current_task, or leave memory_dir out"
        )

    def build_for(self, batch: Batch, task_classes: Sequence[Sequence[int]] | None = None) -> None:
        """Allocate the memory for examples such as a batch's, where it was built without a shape.

        Args:
            batch: Examples, as they will be written.
            task_classes: The classes of each task, where they are known.

        Raises:
            UserError: The examples have no fixed shape.
        """
        if not self.is_allocated:
            self._allocate(*tf.nest.map_structure(column_of, batch[:2]))

    @property
    def is_allocated(self) -> bool:
        """Whether shapes and dtypes of the examples are known."""
        return self._forms is not None

    @property
    def example_shape(self) -> Any:
        """Shape of one example, or of each of its inputs; None until it is known."""
        return shape_of(self._forms.inputs) if self.is_allocated else None

    @property
    def example_dtype(self) -> Any:
        """dtype of the stored inputs, or of each of them; None until it is known."""
        return dtype_of(self._forms.inputs) if self.is_allocated else None

    @property
    def inputs(self) -> Any:
        """The variable that holds the inputs, or those that hold each of them.

        Raises:
            UserError: They lie in a file, or nothing is allocated.
        """
        self.check_allocated()
        self.check_holds_inputs("what they are read for needs them in a variable")
        return self._forms.together(self._input_columns)

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

    def check_holds_inputs(self, because: str) -> None:
        """Raise UserError where the inputs lie in a file, with the reason why they must not."""
        if self.memory_dir is not None:
            raise UserError(
                f"received a {type(self).__name__} with memory_dir={self.memory_dir!r}, whose "
                f"inputs lie in a file that ends with the process, but {because}: leave "
                "memory_dir out"
            )

    def rows(self, slots: tf.Tensor, weights: tf.Tensor) -> Batch:
        """The contents of slots (int32 [n]) as a batch with the given weights (float32 [n])."""
        self.check_allocated()
        if self.disk is not None:
            parts = self.disk.rows(slots)
        else:
            parts = [read_rows(column, slots) for column in self._input_columns]
        for i, form in self._packed().items():
            parts[i] = unpack_bytes(parts[i], form.shape)
        return Batch(
            inputs=self._forms.together(parts),
            labels=read_rows(self.labels, slots),
            tasks=read_rows(self.tasks, slots),
            weights=weights,
            extras={name: read_rows(column, slots) for name, column in self.columns.items()},
        )

    def place(self, batch: Batch, slots: tf.Tensor) -> None:
        """As `put`, into slots that are distinct but for `capacity`."""
        self.check(batch)
        # The row that stands for no slot stays as it is: the same state, however examples came.
        kept = tf.where(slots < self.capacity)[:, 0]
        batch, slots = batch.map(lambda part: tf.gather(part, kept)), tf.gather(slots, kept)
        forms = zip(tf.nest.flatten(batch.inputs), self._forms.flat, strict=True)
        parts = [part if part.shape[1:].is_fully_defined() else
                 # Rows that are shorter than a slot would be written into a part of it.
                 tf.ensure_shape(part, [None, *form.shape]) for part, form in forms]  # fmt: skip
        for i in self._packed():
            parts[i] = pack_bytes(parts[i])
        if self.disk is not None:
            self.disk.place(slots, parts)
            parts = []
        columns = [*self._input_columns, self.labels, self.tasks]
        for column, rows in zip(columns, [*parts, batch.labels, batch.tasks], strict=True):
            write_rows(column, slots, rows)
        for name, column in self.columns.items():
            if name not in batch.extras:
                raise UserError(
                    f"received a batch with the extras {sorted(batch.extras)}, but the memory "
                    f"stores {sorted(self.columns)}: pass batch._replace(extras={{...}})"
                )
            write_rows(column, slots, tf.cast(batch.extras[name], column.dtype))

    def grow_labels(self, classes: int) -> None:
        """Let labels that are one-hot rows have so many classes, those that are stored too."""
        if self.is_allocated:
            resize(self.labels, (self.labels.shape[0], classes))
            labels = tf.TensorSpec([classes], self._forms.labels.dtype)
            self._forms = Forms(self._forms.inputs, labels)

    def check(self, batch: Batch) -> None:
        """Check that examples fit into the columns.

        Raises:
            UserError: Inputs or labels are not of the memory's dtype and shape.
        """
        check_rows("inputs", batch.inputs, self._forms.inputs, "example")
        check_rows("labels", batch.labels, self._forms.labels, "label")

    def check_shapes(self, inputs: Any) -> None:
        """Check shapes alone, of inputs whose shapes a graph does not know; `check` does the rest.

        Args:
            inputs: As the stream delivers them, eager.

        Raises:
            UserError: One is not the memory's.
        """
        if self.is_allocated:
            for rows, form in zip(tf.nest.flatten(inputs), self._forms.flat, strict=False):
                check_shape("inputs", rows, form, "example")

    def save_own_variables(self, store: Any) -> None:
        """Save the state; inputs are saved as inputs, also where they are held packed.

        Raises:
            UserError: They lie in a file.
        """
        self.check_holds_inputs("a saved model has its memory with it")
        for name, variable in self._own_variables().items():
            if variable.dtype == "string":
                store[name], store[f"{name}_bytes"] = join_strings(variable.numpy())
            else:
                store[name] = variable
        for i, form in self._packed().items():
            store[str(i)] = unpack_bytes(self._input_columns[i].value, form.shape).numpy()

    def load_own_variables(self, store: Any) -> None:
        """Load what `save_own_variables` saved."""
        # What Keras passes has keys, and is no dictionary.
        keys = [key for key in store.keys() if not key.endswith("_bytes")]  # noqa: SIM118
        parts = {key: store[key] for key in keys}
        for name, variable in self._own_variables().items():
            if variable.dtype == "string":
                lengths, joined = (np.asarray(store[key]) for key in (name, f"{name}_bytes"))
                parts[name] = split_strings(lengths, joined)
        for i in self._packed():
            packed = pack_bytes(tf.constant(np.asarray(store[str(i)]))).numpy()
            parts[str(i)] = packed
        super().load_own_variables(parts)

    def _own_variables(self) -> dict[str, keras.Variable]:
        """Those that are no layer's of it, by the names that Keras saves them under."""
        variables: dict[str, keras.Variable] = {}
        super().save_own_variables(variables)
        return variables

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments common to all memories."""
        extras = {name: [list(shape), dtype] for name, (shape, dtype) in self.extras.items()}
        config = {"seed": self.seed, "name": self.name, "memory_dir": self.memory_dir}
        known = self._forms.config() if self.is_allocated else {}
        return {**known, **config, **({"extras": extras} if extras else {})}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A memory from `get_config`, also from that of a file saved with the names before."""
        renamed = {"image_shape": "example_shape", "image_dtype": "example_dtype"}
        return cls(**{renamed.get(key, key): value for key, value in config.items()})

    def _allocate(self, inputs: Any, labels: tf.TensorSpec) -> None:
        self._forms = Forms(inputs, labels)
        rows = self.capacity + 1
        if self.memory_dir is not None:
            self.disk = DiskInputs(self._forms.flat, self.capacity, self.memory_dir)
        else:
            self._input_columns = self._forms.variables(rows, self._state)
        self.labels = self._state("labels", (rows, *labels.shape), labels.dtype.name)
        self.tasks = self._state("tasks", (rows,), "int32")
        # A weight of its own, because Keras does not save the state of a SeedGenerator.
        self.draws = self._state("draws", (), "int64")
        self.columns = {
            name: self._state(name, (rows, *entry), dtype)
            for name, (entry, dtype) in self.extras.items()
        }
        self.make_state()

    def _packed(self) -> dict[int, tf.TensorSpec]:
        return self._forms.packed if self.is_allocated and self.disk is None else {}

    def _state(self, name: str, shape: tuple[int, ...], dtype: str) -> keras.Variable:
        return self.add_weight(
            name=name, shape=shape, dtype=dtype, initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip
