"""The base of the replay memories: slots in fixed-shape variables, written and read in place."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.rng import sample_without_replacement
from nccl_tf.variables import (
    count_words,
    needs_packing,
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
    capacity; one row more than the capacity takes what a batch does not keep.

    Args:
        capacity: Number of slots.
        example_shape: Shape of one example, such as (height, width, channels).
        example_dtype: dtype of the stored inputs; the stream must deliver it.
        seed: Seed of the memory's random draws.
        extras: Further columns by name, each with the shape of one entry and its dtype, such as
            {"logits": ((10,), "float32")}; a batch that is written has to carry them, and one that
            is read does.

    Raises:
        UserError: The capacity is below 1.
    """

    def __init__(
        self,
        capacity: int,
        example_shape: tuple[int, ...],
        example_dtype: str = "uint8",
        seed: int = 0,
        extras: Mapping[str, tuple[Sequence[int], str]] | None = None,
        **kwargs: Any,
    ):
        super().__init__(trainable=False, **kwargs)
        if capacity < 1:
            raise UserError(
                f"received a memory of {capacity} slots; a replay memory needs at least 1: "
                "raise --memory_size or --memory_per_class"
            )
        self.capacity = int(capacity)
        self.example_shape = tuple(int(side) for side in example_shape)
        self.example_dtype = example_dtype
        self.seed = int(seed)
        rows = self.capacity + 1
        self._packs = needs_packing(example_dtype)
        if self._packs:
            self.inputs = self._state("inputs", (rows, count_words(self.example_shape)), "int32")
        else:
            self.inputs = self._state("inputs", (rows, *self.example_shape), example_dtype)
        self.labels = self._state("labels", (rows,), "int32")
        self.tasks = self._state("tasks", (rows,), "int32")
        self.extras = {name: (tuple(s), dtype) for name, (s, dtype) in (extras or {}).items()}
        # A weight of its own, because Keras does not save the state of a SeedGenerator.
        self.draws = self._state("draws", (), "int64")
        self.columns = {
            name: self._state(name, (rows, *entry), dtype)
            for name, (entry, dtype) in self.extras.items()
        }
        self.built = True

    def next_seed(self) -> tf.Tensor:
        """int64 [2]: the seed of the memory's next random draw."""
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
            if name in self.columns:
                resize(self.columns[name], (self.capacity + 1, *entry))
                self.extras[name] = (tuple(entry), dtype)

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
        inputs = read_rows(self.inputs, slots)
        return Batch(
            inputs=unpack_bytes(inputs, self.example_shape) if self._packs else inputs,
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
            TypeError: The inputs are not of the memory's dtype.
        """
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
            TypeError: The inputs are not of the memory's dtype.
        """
        self.place(batch, keep_last(slots, self.capacity))

    def place(self, batch: Batch, slots: tf.Tensor) -> None:
        """As `put`, into slots that are distinct but for `capacity`."""
        if batch.inputs.dtype != self.example_dtype:
            raise TypeError(
                f"received {batch.inputs.dtype.name} inputs, but the memory stores "
                f"{self.example_dtype}: build the memory with "
                f'example_dtype="{batch.inputs.dtype.name}" or feed {self.example_dtype} inputs'
            )
        inputs = pack_bytes(batch.inputs) if self._packs else batch.inputs
        parts = (self.inputs, inputs), (self.labels, batch.labels), (self.tasks, batch.tasks)
        for variable, rows in parts:
            write_rows(variable, slots, rows)
        for name, column in self.columns.items():
            if name not in batch.extras:
                raise ValueError(
                    f"received a batch with the extras {sorted(batch.extras)}, but the memory "
                    f"stores {sorted(self.columns)}: pass batch._replace(extras={{...}})"
                )
            write_rows(column, slots, tf.cast(batch.extras[name], column.dtype))

    def save_own_variables(self, store: Any) -> None:
        """Save the state; inputs are saved as inputs, also where they are held packed."""
        super().save_own_variables(store)
        if self._packs:
            store["0"] = unpack_bytes(self.inputs.value, self.example_shape).numpy()

    def load_own_variables(self, store: Any) -> None:
        """Load what `save_own_variables` saved."""
        if self._packs:
            store = {**store, "0": pack_bytes(tf.constant(np.asarray(store["0"]))).numpy()}
        super().load_own_variables(store)

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments common to all memories."""
        extras = {name: [list(shape), dtype] for name, (shape, dtype) in self.extras.items()}
        return {
            "example_shape": list(self.example_shape),
            "example_dtype": self.example_dtype,
            "seed": self.seed,
            "name": self.name,
            **({"extras": extras} if extras else {}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A memory from `get_config`, also from that of a file saved with `image_...` keys."""
        return cls(**{key.replace("image_", "example_"): value for key, value in config.items()})

    def _state(self, name: str, shape: tuple[int, ...], dtype: str) -> keras.Variable:
        return self.add_weight(
            name=name, shape=shape, dtype=dtype, initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip


def choose(stored: tf.Tensor, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Which of the readable examples a read returns: `count` of them, or all and repetitions.

    Args:
        stored: int32 [...], how many there are.
        count: Number of rows of the result.
        seed: int64 [..., 2], never the same twice.

    Returns:
        Positions int32 [..., count] and weights float32 [..., count], 0 for repetitions.
    """
    index = tf.range(count)
    drawn = sample_without_replacement(seed, tf.maximum(stored, count), count)
    stored = stored[..., None]
    repeated = tf.math.floormod(index, tf.maximum(stored, 1))
    return tf.where(stored > count, drawn, repeated), tf.cast(index < stored, tf.float32)


def keep_last(slots: tf.Tensor, nowhere: int | tf.Tensor) -> tf.Tensor:
    """Send all but the last of equal slots to `nowhere`, so that a scatter has no order to choose.

    Args:
        slots: int32 [..., n].
        nowhere: The row that takes what is not kept; int32 [..., 1] where there are several.

    Returns:
        int32 [..., n], distinct but for `nowhere`.
    """
    index = tf.range(tf.shape(slots)[-1])
    same = tf.equal(slots[..., :, None], slots[..., None, :])
    later = tf.less(index[:, None], index[None, :])
    return tf.where(tf.reduce_any(tf.logical_and(same, later), axis=-1), nowhere, slots)
