"""The base of the replay memories: what is stored, where it goes and what is read."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.ahead import Ahead
from nccl_tf.memories.slots import choose, keep_last
from nccl_tf.memories.stored_examples import StoredExamples
from nccl_tf.variables import resize


class Memory(StoredExamples):
    """Slots for inputs, labels and task ids; a subclass says which slots to write and to read.

    The state is non-trainable variables, allocated once, so that it travels with the weights of the
    model that holds the memory. Writing and reading touch the rows of one batch, whatever the
    capacity; one row more than the capacity stands for no slot, and is not written. Without
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
        memory_dir: Folder of a file that holds the inputs, for more than main memory has room for:
            the same bits, read and written between calls of the graph. For a ring and a reservoir,
            in methods that read one batch a step; the file has no name and ends with the process.
            None for inputs in main memory.
        name: The memory's name; None for one that Keras makes.

    Raises:
        UserError: The capacity is below 1, an argument is unknown, or the kind of memory has no
            meaning for `memory_dir`, or the folder no room.
    """

    by_class: ClassVar[bool] = False
    """Whether it keeps examples by their class, so that labels have to be classes."""
    takes_batches: ClassVar[bool] = True
    """Whether `write` chooses slots, where a method does not say itself what is kept."""

    def next_seed(self) -> tf.Tensor:
        """int64 [2]: the seed of the memory's next random draw."""
        self.check_allocated()
        return tf.stack([tf.constant(self.seed, tf.int64), self.draws.value.assign_add(1)])

    def seeds_ahead(self, turns: tf.Tensor) -> tf.Tensor:
        """int64 [n, 2]: the seeds of the draws to come; turn 0 (int32 [n]) is the next one."""
        numbers = self.draws.value + 1 + tf.cast(turns, tf.int64)
        return tf.stack([tf.fill(tf.shape(numbers), tf.constant(self.seed, tf.int64)), numbers], 1)

    def readable_count(self) -> tf.Tensor:
        """int32 scalar: how many stored examples `read` draws from."""
        raise self._lacks("readable_count()")

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        """int32 [n]: the slots of the readable examples number `positions`."""
        raise self._lacks("readable_slots(positions)")

    def slots_for(self, batch: Batch) -> tf.Tensor:
        """int32 [n]: the slot that each example of a batch goes to; `capacity` where to none.

        Two examples may name one slot. Counters are advanced.
        """
        raise self._lacks("slots_for(batch)")

    def _lacks(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} is no whole memory: define {method}, as ReservoirMemory does"
        )

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

    def read_all(self) -> Batch:
        """All examples that `read` draws from, each once, as NumPy arrays.

        Returns:
            A batch of `readable_count` rows in the order of their slots, with inputs, labels, tasks
            and extras.

        Raises:
            UserError: It was built without shapes and has seen no fit, or its inputs lie in a file.

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
        self.check_holds_inputs("they would all be read at once")
        count = self.readable_count()
        slots = self.readable_slots(tf.range(count))
        return self.rows(slots, tf.ones([count])).map(lambda part: part.numpy())

    def upcoming(self, count: int) -> Batch:
        """What the next `read(count)` will return, without drawing it."""
        self.check_allocated()
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.draws.value + 1])
        return self.rows(*self.draw(count, seed))

    def can_look_ahead(self, tasks: np.ndarray) -> bool:
        """Whether `ahead` knows what steps on examples of these tasks, integers, read and write."""
        return False

    def ahead(self, batches: Batch, start: tf.Tensor, count: int) -> Ahead:
        """What `read(count)` and then `write` do in each of several steps, from one of them on.

        Args:
            batches: [steps, n, ...], what each step writes.
            start: int32 scalar, the first step; what is returned for those before it means nothing.
            count: Number of rows of each read.
        """
        raise NotImplementedError

    def draw(self, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The slots (int32 [count]) and weights (float32 [count]) of what `read` returns.

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
            UserError: Inputs or labels are not of the memory's dtype and shape.
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
            UserError: Inputs or labels are not of the memory's dtype and shape.
        """
        self.place(batch, keep_last(slots, self.capacity))
