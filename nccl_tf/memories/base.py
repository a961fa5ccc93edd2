"""The base of the replay memories: slots in fixed-shape variables, written and read in place."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.columns import (
    Forms,
    check_rows,
    column_of,
    dtype_of,
    input_specs,
    shape_of,
)
from nccl_tf.memories.slots import choose, keep_last
from nccl_tf.variables import (
    pack_bytes,
    read_rows,
    resize,
    unpack_bytes,
    write_rows,
)


class Memory(keras.layers.Layer):
    """Slots for inputs, labels and task ids; a subclass says which slots to write and to read.

    The state is non-trainable variables, allocated once, so that it travels with the weights of the
    model that holds the memory. Writing and reading touch the rows of one batch, whatever the
    capacity; one row more than the capacity takes what a batch does not keep. Without
    `example_shape` it is allocated for the first batch of the first `fit`.

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

    Raises:
        UserError: The capacity is below 1.
    """

    by_class: ClassVar[bool] = False
    """Whether it keeps examples by their class, so that labels have to be classes."""

    def __init__(
        self,
        capacity: int | None,
        example_shape: Any = None,
        example_dtype: Any = "uint8",
        seed: int = 0,
        extras: Mapping[str, tuple[Sequence[int], str]] | None = None,
        label_shape: Sequence[int] = (),
        label_dtype: str = "int32",
        **kwargs: Any,
    ):
        super().__init__(trainable=False, **kwargs)
        if capacity is not None and capacity < 1:
            raise UserError(
                f"received a memory of {capacity} slots; a replay memory needs at least 1: "
                "raise --memory_size or --memory_per_class"
            )
        self.capacity: Any = None if capacity is None else int(capacity)
        self.seed = int(seed)
        self.extras = {name: (tuple(s), dtype) for name, (s, dtype) in (extras or {}).items()}
        self._input_columns: list[keras.Variable] = []
        self.built = True
        if example_shape is not None:
            labels = tf.TensorSpec([int(side) for side in label_shape], label_dtype)
            self._allocate(input_specs(example_shape, example_dtype), labels)

    def make_state(self) -> None:
        """Make the variables of a subclass; called once, after those of the columns."""

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
        return bool(self._input_columns)

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
        """The variable that holds the inputs, or those that hold each of them."""
        self.check_allocated()
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

    def next_seed(self) -> tf.Tensor:
        """int64 [2]: the seed of the memory's next random draw."""
        self.check_allocated()
        return tf.stack([tf.constant(self.seed, tf.int64), self.draws.value.assign_add(1)])

    def readable_count(self) -> tf.Tensor:
        """int32 scalar: how many stored examples `read` draws from."""
        raise NotImplementedError

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        """int32 [n]: the slots of the readable examples number `positions`."""
        raise NotImplementedError

    def slots_for(self, batch: Batch) -> tf.Tensor:
        """int32 [n]: the slot that each example of a batch goes to; `capacity` where to none.

        Two examples may name one slot. Counters are advanced.
        """
        raise NotImplementedError

    def close_task(self, task_id: int) -> None:
        """Take note that a task has ended. Calling it again for the same task changes nothing."""
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
        for name, (entry, dtype) in extras.items():
            if name in self.extras:
                self.extras[name] = (tuple(entry), dtype)
                if self.is_allocated:
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

    def upcoming(self, count: int) -> Batch:
        """What the next `read(count)` will return, without drawing it."""
        self.check_allocated()
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.draws.value + 1])
        return self.rows(*self.draw(count, seed))

    def draw(self, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The slots (int32 [count]) and weights (float32 [count]) of what `read` returns.

        Args:
            count: Number of slots.
            seed: int64 [2], never the same twice.
        """
        positions, weights = choose(self.readable_count(), count, seed)
        return self.readable_slots(positions), weights

    def rows(self, slots: tf.Tensor, weights: tf.Tensor) -> Batch:
        """The contents of slots (int32 [n]) as a batch with the given weights (float32 [n])."""
        self.check_allocated()
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

    def write(self, batch: Batch) -> None:
        """Offer a batch to the memory, example by example in its order.

        Args:
            batch: Examples; those of weight 0 are ignored.

        Raises:
            TypeError: Inputs or labels are not of the memory's dtype and shape.
            UserError: It was built without shapes and has seen no fit.
        """
        self.check_allocated()
        self.put(batch, self.kept_slots_for(batch))

    def kept_slots_for(self, batch: Batch) -> tf.Tensor:
        """As `slots_for`, with `capacity` for padding too."""
        return tf.where(batch.weights > 0, self.slots_for(batch), self.capacity)

    def put(self, batch: Batch, slots: tf.Tensor) -> None:
        """Write a batch into slots.

        Args:
            batch: Examples.
            slots: int32 [n]; `capacity` for nowhere. Of equal slots the last one is written.

        Raises:
            TypeError: Inputs or labels are not of the memory's dtype and shape.
        """
        self.place(batch, keep_last(slots, self.capacity))

    def place(self, batch: Batch, slots: tf.Tensor) -> None:
        """As `put`, into slots that are distinct but for `capacity`."""
        self.check(batch)
        parts = tf.nest.flatten(batch.inputs)
        for i in self._packed():
            parts[i] = pack_bytes(parts[i])
        columns = [*self._input_columns, self.labels, self.tasks]
        for column, rows in zip(columns, [*parts, batch.labels, batch.tasks], strict=True):
            write_rows(column, slots, rows)
        for name, column in self.columns.items():
            if name not in batch.extras:
                raise ValueError(
                    f"received a batch with the extras {sorted(batch.extras)}, but the memory "
                    f"stores {sorted(self.columns)}: pass batch._replace(extras={{...}})"
                )
            write_rows(column, slots, tf.cast(batch.extras[name], column.dtype))

    def check(self, batch: Batch) -> None:
        """Check that examples fit into the columns.

        Raises:
            TypeError: Inputs or labels are not of the memory's dtype and shape.
        """
        check_rows("inputs", batch.inputs, self._forms.inputs, "example")
        check_rows("labels", batch.labels, self._forms.labels, "label")

    def save_own_variables(self, store: Any) -> None:
        """Save the state; inputs are saved as inputs, also where they are held packed."""
        super().save_own_variables(store)
        for i, form in self._packed().items():
            store[str(i)] = unpack_bytes(self._input_columns[i].value, form.shape).numpy()

    def load_own_variables(self, store: Any) -> None:
        """Load what `save_own_variables` saved."""
        for i in self._packed():
            packed = pack_bytes(tf.constant(np.asarray(store[str(i)]))).numpy()
            store = {**store, str(i): packed}
        super().load_own_variables(store)

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments common to all memories."""
        extras = {name: [list(shape), dtype] for name, (shape, dtype) in self.extras.items()}
        config = {"seed": self.seed, "name": self.name, **({"extras": extras} if extras else {})}
        return {**(self._forms.config() if self.is_allocated else {}), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A memory from `get_config`, also from that of a file saved with `image_...` keys."""
        return cls(**{key.replace("image_", "example_"): value for key, value in config.items()})

    def _allocate(self, inputs: Any, labels: tf.TensorSpec) -> None:
        self._forms = Forms(inputs, labels)
        rows = self.capacity + 1
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
        return self._forms.packed if self.is_allocated else {}

    def _state(self, name: str, shape: tuple[int, ...], dtype: str) -> keras.Variable:
        return self.add_weight(
            name=name, shape=shape, dtype=dtype, initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip
