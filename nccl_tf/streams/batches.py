"""Batches from examples in memory, by the indices of their rows, and as a tf.data.Dataset."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nccl_tf.errors import checked_at_least
from nccl_tf.streams.arrays import Examples

if TYPE_CHECKING:
    import tensorflow as tf


_AT_ONCE = 200


def checked_batch_size(batch_size: int) -> int:
    """Return `batch_size` if it is an integer >= 1.

    Raises:
        UserError: It is not.
    """
    return checked_at_least("batch_size", batch_size, 1)


def count_steps(examples: int, batch_size: int, passes: int) -> int:
    """Number of batches in `passes` passes over `examples` examples.

    Raises:
        UserError: The batch size or the number of passes is below 1.
    """
    passes = checked_at_least("passes", passes, 1)
    return passes * -(-examples // checked_batch_size(batch_size))


def pad_order(order: np.ndarray, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Split an order of examples into batches of one size.

    The last batch is padded by repeating its own examples in turn, with weight 0, because they keep
    the statistics of batch norm closest to those of the real examples.

    Args:
        order: int64 [n], n >= 1, indices of the examples.
        batch_size: Examples in a batch, >= 1.

    Returns:
        Indices int64 [steps * batch_size] and weights float32 likewise, 1 for real examples and 0
        for padding; steps = ceil(n / batch_size).
    """
    steps = -(-len(order) // batch_size)
    last = order[(steps - 1) * batch_size :]
    padded = np.concatenate([order[: (steps - 1) * batch_size], np.resize(last, batch_size)])
    weights = np.zeros(steps * batch_size, np.float32)
    weights[: len(order)] = 1
    return padded, weights


Order = Callable[[int], tuple[np.ndarray, ...]]
"""From the number of an epoch to the rows of its batches, int64 [m], and, where some are padding,
their weights float32 [m]."""


class IndexedBatches:
    """Batches of examples in memory: which rows each of them has.

    An iterator over them is a place in an order, and no graph of tf.data. `dataset` makes one.

    Args:
        columns: (inputs,), (inputs, labels) or (inputs, labels, weights): arrays or tensors
            [n, ...], or structures of them.
        size: Examples in a batch; the last one has what is left.
        rows: Of an epoch, those of padding too.
        order: These rows.

    Attributes:
        columns, size, order: The arguments.
        count: Batches of an epoch.
        fixed_size: The size of all batches; None where the last one is smaller.
        epoch: Whose order the next reading has.
        joins_tasks: Whether they are of all tasks so far.
    """

    joins_tasks = False

    def __init__(self, columns: tuple[Any, ...], size: int, rows: int, order: Order) -> None:
        self.columns, self.size, self.order = columns, size, order
        self.count, self.fixed_size = -(-rows // size), None if rows % size else size
        self.epoch = 0
        self._shown: tuple[tf.Variable, ...] = ()

    @classmethod
    def padded(
        cls, examples: Examples, task_ids: int | np.ndarray, size: int, count: int, order: Order
    ) -> Self:
        """Batches of one size, of examples with the task of each.

        Args:
            examples: Inputs, such as uint8 images [n, h, w, c] or a dictionary of arrays [n, ...],
                and int32 labels or float32 targets [n, ...].
            task_ids: The task of all examples, or integers [n], the task of each example.
            size: Examples in a batch.
            count: Batches of an epoch.
            order: Their rows, as `pad_order` makes them.

        Returns:
            Batches ({"inputs": [B, ...], "task": int32 [B]}, labels [B, ...], weight float32 [B]).
        """
        tasks = np.broadcast_to(np.int32(task_ids), len(examples.labels))
        columns = {"inputs": examples.inputs, "task": tasks}, examples.labels
        return cls(columns, size, size * count, order)

    @functools.cached_property
    def tensors(self) -> tuple[Any, ...]:
        """The columns as tensors on the host, where they are gathered from."""
        import tensorflow as tf

        with tf.device("CPU:0"):
            return tf.nest.map_structure(tf.identity, self.columns)

    def begin_epoch(self, epoch: int) -> None:
        """Choose the order of the next reading, by the number of an epoch from 0."""
        self.epoch = epoch
        if self._shown:
            for shown, part in zip(self._shown, self.order(epoch), strict=True):
                shown.assign(part.reshape(-1, self.size))

    def __iter__(self) -> "Reading":
        return Reading(self)

    def dataset(self, changes: bool = False) -> "tf.data.Dataset":
        """The same batches as a dataset, where all of them have one size.

        Args:
            changes: Whether `begin_epoch` chooses the order of its next reading.

        Returns:
            A dataset of known cardinality and static shapes, with the attributes `by_index`, this
            object, and `joins_tasks`.
        """
        import tensorflow as tf

        order = tuple(part.reshape(-1, self.size) for part in self.order(self.epoch))
        # On the host, where the pipeline runs; an accelerator's memory is for the network.
        with tf.device("CPU:0"):
            if changes:
                self._shown = tuple(map(tf.Variable, order))
                # Variables are read within the pipeline, when a reading begins.
                read = tf.data.Dataset.range(1).flat_map(self._shown_rows)
            else:
                read = tf.data.Dataset.from_tensor_slices(order)
        columns = self.tensors

        @tf.autograph.experimental.do_not_convert
        def batches_of(*rows: "tf.Tensor") -> tuple[Any, ...]:
            return gather(columns, *rows)

        known = tf.data.experimental.assert_cardinality(self.count)
        # Many batches are gathered at once, which costs hardly more than one.
        batches = without_autotuning(read).batch(_AT_ONCE).map(batches_of).unbatch()
        batches = batches.apply(known).prefetch(2)
        batches.by_index, batches.joins_tasks = self, self.joins_tasks
        return batches

    def _shown_rows(self, _: "tf.Tensor") -> "tf.data.Dataset":
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices(tuple(part.value() for part in self._shown))


class Reading:
    """One reading of batches: an iterator over them that also delivers the rows of many at once.

    Args:
        batches: To read.
    """

    def __init__(self, batches: IndexedBatches) -> None:
        self.batches = batches
        self._left: tuple[np.ndarray, ...] | None = None

    def take(self, most: int) -> tuple[np.ndarray, ...] | None:
        """The rows of the next batches of one size.

        Args:
            most: At most so many.

        Returns:
            int64 [k, B], and float32 [k, B] where batches are padded; None at the end.
        """
        if self._left is None:  # when it is read: the epoch may begin between
            self._left = self.batches.order(self.batches.epoch)
        count = min(most, len(self._left[0]) // self.batches.size)
        end = count * self.batches.size or len(self._left[0])
        if not end:
            return None
        taken = tuple(part[:end].reshape(max(count, 1), -1) for part in self._left)
        self._left = tuple(part[end:] for part in self._left)
        return taken

    def run(self, most: int, steps: Callable[[tuple[np.ndarray, ...], int], Any]) -> Any:
        """Take the steps of one call, and return the logs of the last ones.

        Args:
            most: At most so many.
            steps: Takes a step for each row of `take`, and returns its logs; it gets the rows, and
                how many steps are left.

        Raises:
            StopIteration: There is no batch.
        """
        left, logs = most, None
        while left and (rows := self.take(left)) is not None:
            logs, left = steps(rows, left), left - len(rows[0])
        if logs is None:
            raise StopIteration
        return logs

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Any, ...]:
        taken = self.take(1)
        if taken is None:
            raise StopIteration
        return gather(self.batches.tensors, *(part[0] for part in taken))


def gather(columns: tuple[Any, ...], rows: Any, *weights: Any) -> tuple[Any, ...]:
    """The batch that rows name. Graph code, too.

    Args:
        columns: Tensors [n, ...], or structures of them.
        rows: int64 [..., B].
        *weights: float32 [..., B], where there are some.
    """
    import tensorflow as tf

    chosen = tf.nest.map_structure(lambda column: tf.gather(column, rows), columns)
    return (*chosen, *map(tf.convert_to_tensor, weights))


def without_autotuning(dataset: "tf.data.Dataset") -> "tf.data.Dataset":
    """The dataset, in which and above which nothing is tuned while it is read.

    Our pipelines leave nothing to tune, and the thread that tunes can outlive and hang them for
    seconds (seen with TensorFlow 2.21: OptimizeLoop misses that the iterator is destroyed).
    """
    import tensorflow as tf

    untuned = tf.data.Options()
    untuned.autotune.enabled = False
    return dataset.with_options(untuned)
