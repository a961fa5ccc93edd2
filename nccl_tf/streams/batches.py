"""Batches of a fixed shape from examples in memory, as a tf.data.Dataset."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

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
        Indices int64 [steps, batch_size] and weights float32 [steps, batch_size], 1 for real
        examples and 0 for padding; steps = ceil(n / batch_size).
    """
    steps = -(-len(order) // batch_size)
    last = order[(steps - 1) * batch_size :]
    padded = np.concatenate([order[: (steps - 1) * batch_size], np.resize(last, batch_size)])
    weights = np.zeros(steps * batch_size, np.float32)
    weights[: len(order)] = 1
    return padded.reshape(steps, batch_size), weights.reshape(steps, batch_size)


def make_batches(
    examples: Examples,
    task_ids: int | np.ndarray,
    orders: Iterable[np.ndarray],
    batch_size: int,
    skip: int = 0,
) -> "tf.data.Dataset":
    """Make a dataset of batches, pass by pass.

    Args:
        examples: Inputs, such as uint8 images [n, h, w, c] or a dictionary of arrays [n, ...], and
            int32 labels or float32 targets [n, ...].
        task_ids: The task of all examples, or integers [n], the task of each example.
        orders: int64 [n] for each pass, the order of the examples.
        batch_size: Examples in a batch.
        skip: Number of batches to skip at the beginning.

    Returns:
        Dataset of known cardinality and static shapes, with elements
        ({"inputs": [B, ...], "task": int32 [B]}, label int32 [B], weight float32 [B]).

    Raises:
        UserError: The batch size is below 1.
    """
    import tensorflow as tf

    batch_size = checked_batch_size(batch_size)
    indices, weights = zip(*(pad_order(order, batch_size) for order in orders), strict=True)
    all_rows = (np.concatenate(indices)[skip:], np.concatenate(weights)[skip:])
    # On the host, where the pipeline runs; an accelerator's memory is for the network.
    with tf.device("CPU:0"):
        rows = tf.data.Dataset.from_tensor_slices(all_rows)
    return gather_rows(examples, task_ids, rows, len(all_rows[0]))


class Columns(NamedTuple):
    """The examples that batches are gathered from.

    Attributes:
        inputs: [n, ...], or a structure of such tensors.
        labels: [n, ...].
        tasks: int32 [n].
    """

    inputs: Any
    labels: "tf.Tensor"
    tasks: "tf.Tensor"

    def gather(self, index: "tf.Tensor", weight: "tf.Tensor") -> tuple:
        """The batches that indices name.

        Args:
            index: int64 [..., B].
            weight: float32 [..., B].

        Returns:
            ({"inputs": [..., B, ...], "task": [..., B]}, labels [..., B, ...], weight).
        """
        import tensorflow as tf

        chosen = tf.nest.map_structure(lambda column: tf.gather(column, index), self.inputs)
        features = {"inputs": chosen, "task": tf.gather(self.tasks, index)}
        return features, tf.gather(self.labels, index), weight


class ByIndex(NamedTuple):
    """What a dataset of batches is made of, for who gathers them himself, many at a time.

    Attributes:
        rows: A dataset of (indices int64 [B], weights float32 [B]), of known cardinality.
        columns: The examples.
        begin_epoch: Chooses the order of the next reading, by the number of an epoch from 0; None
            where there is one order.
    """

    rows: "tf.data.Dataset"
    columns: Columns
    begin_epoch: Callable[[int], Any] | None = None


def gather_rows(
    examples: Examples,
    task_ids: int | np.ndarray,
    rows: "tf.data.Dataset",
    count: int,
    begin_epoch: Callable[[int], Any] | None = None,
) -> "tf.data.Dataset":
    """The batches that a dataset of (indices int64 [B], weights float32 [B]) names.

    Args:
        examples: As for `make_batches`, like the next one.
        task_ids: The task of all examples, or of each.
        rows: The dataset.
        count: How many there are.
        begin_epoch: As for `ByIndex`.

    Returns:
        A dataset with an attribute `by_index`, a `ByIndex`.
    """
    import tensorflow as tf

    with tf.device("CPU:0"):
        columns = Columns(
            tf.nest.map_structure(tf.constant, examples.inputs),
            tf.constant(examples.labels),
            tf.constant(np.broadcast_to(task_ids, len(examples.labels)), tf.int32),
        )
    gather = tf.autograph.experimental.do_not_convert(columns.gather)
    known = tf.data.experimental.assert_cardinality(count)
    rows = without_autotuning(rows)
    # Many batches are gathered at once, which costs hardly more than one.
    batches = rows.batch(_AT_ONCE).map(gather).unbatch().apply(known).prefetch(2)
    batches.by_index = ByIndex(rows.apply(known), columns, begin_epoch)
    return batches


def without_autotuning(dataset: "tf.data.Dataset") -> "tf.data.Dataset":
    """The dataset, in which and above which nothing is tuned while it is read.

    Our pipelines leave nothing to tune, and the thread that tunes can outlive and hang them for
    seconds (seen with TensorFlow 2.21: OptimizeLoop misses that the iterator is destroyed).
    """
    import tensorflow as tf

    untuned = tf.data.Options()
    untuned.autotune.enabled = False
    return dataset.with_options(untuned)
