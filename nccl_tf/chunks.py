"""Datasets that can bring many batches in one element, for a loop that takes them apart in a graph.

A pipeline spends as much on a batch of ten small inputs as their step on a small network does; on
fifty such batches at once it spends hardly more.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Chunks = Callable[[int], tf.data.Dataset]
"""From a number of batches to a dataset of the same batches, so many in an element.

Its elements have one more leading dimension, the number of batches; the last one may have fewer.
"""


def with_chunks(dataset: tf.data.Dataset, chunks: Chunks) -> tf.data.Dataset:
    """The dataset, which `chunks_of` knows from now on to come in chunks too."""
    dataset.in_chunks = chunks
    return dataset


def chunks_of(data: object) -> Chunks | None:
    """How a dataset comes in chunks, or None for data that do not."""
    return getattr(data, "in_chunks", None)


def batch_of(chunk: Any, step: tf.Tensor) -> Any:
    """Batch number `step`, int32 scalar, of a chunk."""
    return tf.nest.map_structure(lambda part: part[step], chunk)


def all_batches_of(chunk: Any) -> Any:
    """The batches of a chunk, [steps, n, ...] in all parts, as one batch."""
    return tf.nest.map_structure(lambda part: tf.reshape(part, [-1, *part.shape[2:]]), chunk)
