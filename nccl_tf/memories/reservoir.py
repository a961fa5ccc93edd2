"""The reservoir: a uniform sample of the stream so far."""

from collections.abc import Callable
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.choices import RESERVOIR_RULES
from nccl_tf.batch import Batch
from nccl_tf.errors import checked_name
from nccl_tf.memories.memory import Memory, keep_last
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

    _owns_private_names = True
    rule: Final[str]
    exclude_current_task: Final[bool]

    def __init__(
        self,
        capacity: int,
        example_shape: Any = None,
        example_dtype: Any = "uint8",
        rule: str = "exact",
        exclude_current_task: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ):
        self.rule = checked_name("reservoir rule", rule, RESERVOIR_RULES)
        self.exclude_current_task = bool(exclude_current_task)
        self.past: PastSlots | None = None
        super().__init__(capacity, example_shape, example_dtype, seed, **kwargs)

    @property
    def reads_open_task(self) -> bool:
        return not self.exclude_current_task

    def make_state(self) -> None:
        self.seen = self.state("seen", (), "int64")
        if self.exclude_current_task:
            self.past = PastSlots(self.capacity, self.state)

    def readable_count(self) -> tf.Tensor:
        if self.past is not None:
            return self.past.count.value
        return tf.minimum(self.seen.value, self.capacity)

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        return positions if self.past is None else self.past.slots_at(positions)

    def slots_for(self, batch: Batch) -> tf.Tensor:
        valid = tf.cast(batch.weights > 0, tf.int64)
        number = self.seen.value + tf.cumsum(valid)
        values_to_draw_from = number - 1 if self.rule == "off_by_one" else number
        drawn = uniform_below(self.next_seed(), tf.maximum(values_to_draw_from, 1))
        overwritten = tf.where(drawn < self.capacity, drawn, self.capacity)
        slots = tf.where(number <= self.capacity, number - 1, overwritten)
        self.seen.value.assign_add(tf.reduce_sum(valid))
        if self.past is not None:
            kept = tf.where(batch.weights > 0, slots, self.capacity)
            self.past.remove(keep_last(kept, self.capacity))
        return slots

    def close_task(self, task_id: int) -> None:
        if self.past is not None:
            self.past.reset(tf.minimum(self.seen.value, self.capacity))


class PastSlots:
    """The set of slots that hold examples of finished tasks.

    Slots leave the set when a batch overwrites them; the end of a task puts all filled slots back.
    The slots are kept as a permutation whose first `count` entries are the set. To remove slots,
    they are swapped with the last entries of the set; the inverse permutation locates them. So
    removing and sampling a batch cost O(batch), whatever the capacity.

    Args:
        capacity: Number of slots.
        make: Makes a variable of zeros, from its name, shape and dtype.
    """

    def __init__(self, capacity: int, make: Callable[..., keras.Variable]):
        self.capacity = int(capacity)
        # The extra entry receives the writes that are to have no effect.
        self.order = make("past_order", (capacity + 1,), "int64")
        self.position = make("past_position", (capacity + 1,), "int64")
        self.count = make("past_count", (), "int64")
        self.reset(0)

    def slots_at(self, positions: tf.Tensor) -> tf.Tensor:
        """int64 [n]: the slots at positions (int64 [n], below `count`) of the set."""
        return read_rows(self.order, positions)

    def reset(self, count: int | tf.Tensor) -> None:
        """Make slots 0 to count - 1 the set, an int64 scalar. Graph code too."""
        self.order.assign(np.arange(self.capacity + 1))
        self.position.assign(np.arange(self.capacity + 1))
        self.count.assign(count)

    def remove(self, slots: tf.Tensor) -> None:
        """Remove slots from the set.

        Args:
            slots: int64 [n], distinct except for `capacity`, which means no slot; slots outside the
                set are ignored.
        """
        size = tf.shape(slots, tf.int64)[0]
        before = self.count.value.read_value()
        where = read_rows(self.position, slots)
        inside = (slots < self.capacity) & (where < before)
        after = before - tf.reduce_sum(tf.cast(inside, tf.int64))
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


def _compact(values: tf.Tensor, chosen: tf.Tensor, nothing: int) -> tf.Tensor:
    """The chosen values first, in order, then `nothing`: int64 [n]."""
    order = tf.argsort(tf.cast(tf.logical_not(chosen), tf.int64), stable=True)
    return tf.gather(tf.where(chosen, values, nothing), order)
