"""The reservoir: a uniform sample of the stream so far."""

from typing import Any, Unpack

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.choices import RESERVOIR_RULES
from nccl_tf.batch import Batch, cut, joined
from nccl_tf.errors import check_name
from nccl_tf.memories.ahead import Ahead, WritesInTurn
from nccl_tf.memories.arguments import MemoryArguments
from nccl_tf.memories.base import Memory
from nccl_tf.memories.slots import choose, keep_last
from nccl_tf.rng import uniform_below
from nccl_tf.variables import read_rows, write_rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class ReservoirMemory(Memory):
    """Reservoir sampling (Vitter, 1985) over the whole stream, current task included.

    Example number n (from 1) is appended while n is at most the capacity. Later, j is drawn
    uniformly from {0, ..., n-1} and the example overwrites slot j if j < capacity. Each of n
    examples is then stored with probability capacity / n. A stored example can be read from the
    next step on, or, with `exclude_current_task`, once its task has ended; reads are then uniform
    over the stored examples of finished tasks.

    Args:
        capacity: Number of slots M.
        example_shape: As for `Memory`: None for what the first `fit` delivers.
        example_dtype: dtype of the stored inputs.
        rule: "exact", or "off_by_one" for the draw of the TF1 code base from {0, ..., n-2}, which
            always stores the first example beyond the capacity.
        exclude_current_task: Whether examples of the current task are not read (MIR). This costs
            two integers a slot; a write and a read remain O(batch).
        seed: Seed of the draws.
        **kwargs: As for `Memory`.

    Raises:
        UserError: The capacity is below 1, or the rule is unknown.

    Example:

    ```python
    stream = nccl_tf.load_stream("permuted_digits", max_tasks=2)
    memory = nccl_tf.ReservoirMemory(100)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = nccl_tf.ExperienceReplay(network, memory)
    ```
    """

    def __init__(
        self,
        capacity: int,
        example_shape: Any = None,
        example_dtype: Any = "uint8",
        rule: str = "exact",
        exclude_current_task: bool = False,
        seed: int = 0,
        **kwargs: Unpack[MemoryArguments],
    ):
        self.rule = check_name("reservoir rule", rule, RESERVOIR_RULES)
        self.exclude_current_task = bool(exclude_current_task)
        self.past: PastSlots | None = None
        super().__init__(capacity, example_shape, example_dtype, seed, **kwargs)

    def check_memory_dir(self) -> None:
        if type(self) is not ReservoirMemory or self.exclude_current_task:
            super().check_memory_dir()

    def make_state(self) -> None:
        self.seen = self._state("seen", (), "int32")
        if self.exclude_current_task:
            self.past = PastSlots(self.capacity, name="past")

    def readable_count(self) -> tf.Tensor:
        if self.past is not None:
            return self.past.count.value
        return tf.minimum(self.seen.value, self.capacity)

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return positions if self.past is None else self.past.slots_at(positions)

    def slots_for(self, batch: Batch) -> tf.Tensor:
        valid = tf.cast(batch.weights > 0, tf.int32)
        slots = self._slots_of(self.seen.value + tf.cumsum(valid), self.next_seed())
        self.seen.value.assign_add(tf.reduce_sum(valid))
        if self.past is not None:
            kept = tf.where(batch.weights > 0, slots, self.capacity)
            self.past.remove(keep_last(kept, self.capacity))
        return slots

    def _slots_of(self, number: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Where examples go.

        Args:
            number: int32 [..., n], of each example in the stream, from 1.
            seed: int64 [..., 2].
        """
        values_to_draw_from = number - 1 if self.rule == "off_by_one" else number
        drawn = uniform_below(seed, tf.maximum(values_to_draw_from, 1))
        overwritten = tf.where(drawn < self.capacity, drawn, self.capacity)
        return tf.where(number <= self.capacity, number - 1, overwritten)

    def can_look_ahead(self, tasks: np.ndarray) -> bool:
        return type(self) is ReservoirMemory and self.past is None

    def ahead(self, batches: Batch, start: tf.Tensor, count: int) -> Ahead:
        """As `Memory.ahead`. Slots do not depend on what is in them: they are drawn first."""
        steps, size = tf.unstack(tf.shape(batches.weights))
        valid = (batches.weights > 0) & (tf.range(steps) >= start)[:, None]
        ones = tf.cast(valid, tf.int32)
        number = self.seen.value + tf.reshape(tf.cumsum(tf.reshape(ones, [-1])), [steps, size])
        turn = 2 * (tf.range(steps) - start)  # a read, then a write
        slots = self._slots_of(number, self.seeds_ahead(turn + 1))
        writes = WritesInTurn(
            tf.reshape(tf.where(valid, slots, self.capacity), [-1]), self.capacity
        )
        stored = tf.minimum(number[:, 0] - ones[:, 0], self.capacity)
        positions, weights = choose(stored, count, self.seeds_ahead(turn))
        positions, weights = tf.reshape(positions, [-1]), tf.reshape(weights, [-1])
        written = writes.before(positions, tf.repeat(tf.range(steps) * size, count))
        whole = joined(batches)
        replays = _overlaid(self.rows(positions, weights), written, whole)

        def keep(end: tf.Tensor, learned: tf.Tensor) -> None:
            self.draws.value.assign_add(tf.cast(2 * (end - start), tf.int64))
            self.seen.value.assign_add(tf.reduce_sum(ones[:learned]))
            into, rows = writes.last(learned * size)
            self.place(whole.map(lambda part: tf.gather(part, rows)), into)

        return Ahead(cut(replays, count), keep)

    def close_task(self, task_id: int) -> None:
        if self.past is not None:
            self.past.reset(min(int(self.seen.numpy()), self.capacity))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "capacity": self.capacity,
            "rule": self.rule,
            "exclude_current_task": self.exclude_current_task,
        }


def _overlaid(rows: Batch, written: tf.Tensor, batch: Batch) -> Batch:
    """Rows of a memory, with those of a batch where they have been written since.

    Args:
        rows: [n, ...].
        written: int32 [n], the batch's rows; -1 for none.
        batch: [m, ...].
    """
    at = tf.where(written >= 0)
    taken = tf.gather_nd(written, at)

    def overlay(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        return tf.tensor_scatter_nd_update(old, at, tf.gather(new, taken))

    return rows._replace(
        inputs=tf.nest.map_structure(overlay, rows.inputs, batch.inputs),
        labels=overlay(rows.labels, batch.labels),
        tasks=overlay(rows.tasks, batch.tasks),
    )


class PastSlots(keras.layers.Layer):
    """The set of slots that hold examples of finished tasks.

    Slots leave the set when a batch overwrites them; the end of a task puts all filled slots back.
    The slots are kept as a permutation whose first `count` entries are the set. To remove slots,
    they are swapped with the last entries of the set; the inverse permutation locates them. So
    removing and sampling a batch cost O(batch), whatever the capacity.

    Args:
        capacity: Number of slots.
    """

    def __init__(self, capacity: int, **kwargs: Any):
        super().__init__(trainable=False, **kwargs)
        self.capacity = int(capacity)
        # The extra entry receives the writes that are to have no effect.
        self.order = self._state("order", np.arange(capacity + 1))
        self.position = self._state("position", np.arange(capacity + 1))
        self.count = self._state("count", np.array(0))
        self.built = True

    def slots_at(self, positions: tf.Tensor) -> tf.Tensor:
        """int32 [n]: the slots at positions (int32 [n], below `count`) of the set."""
        return read_rows(self.order, positions)

    def reset(self, count: int) -> None:
        """Make slots 0 to count - 1 the set."""
        self.order.assign(np.arange(self.capacity + 1))
        self.position.assign(np.arange(self.capacity + 1))
        self.count.assign(count)

    def remove(self, slots: tf.Tensor) -> None:
        """Remove slots from the set.

        Args:
            slots: int32 [n], distinct except for `capacity`, which means no slot; slots outside the
                set are ignored.
        """
        size = tf.shape(slots)[0]
        before = self.count.value.read_value()
        where = read_rows(self.position, slots)
        inside = (slots < self.capacity) & (where < before)
        after = before - tf.reduce_sum(tf.cast(inside, tf.int32))
        # The set shrinks to [0, after): holes in it are filled from the tail [after, before).
        tail = tf.minimum(after + tf.range(size), self.capacity)
        taken = tf.reduce_any(tf.equal(tail[:, None], where[None, :]) & inside[None, :], axis=1)
        holes = _compact(where, inside & (where < after), self.capacity)
        kept = _compact(tail, (tail < before) & tf.logical_not(taken), self.capacity)
        out, into = self.slots_at(holes), self.slots_at(kept)
        for positions, new_slots in ((holes, into), (kept, out)):
            write_rows(self.order, positions, new_slots)
            write_rows(self.position, new_slots, positions)
        self.count.assign(after)

    def _state(self, name: str, value: np.ndarray) -> keras.Variable:
        variable = self.add_weight(
            name=name, shape=value.shape, dtype="int32", initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip
        variable.assign(value)
        return variable


def _compact(values: tf.Tensor, chosen: tf.Tensor, nothing: int) -> tf.Tensor:
    """The chosen values first, in their order, then `nothing`: int32 [n]."""
    order = tf.argsort(tf.cast(tf.logical_not(chosen), tf.int32), stable=True)
    return tf.gather(tf.where(chosen, values, nothing), order)
