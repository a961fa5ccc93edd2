"""Datasets that can bring many batches in one element, for a loop that takes them apart in a graph.

A pipeline spends as much on a batch of ten small images as their step on a small network does; on
fifty such batches at once it spends hardly more.
"""

from collections.abc import Callable

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
