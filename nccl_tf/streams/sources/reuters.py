"""The newswires of Reuters, which Keras downloads."""

import textwrap

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples, ExampleSet, PixelScaling

WORDS = 1000
"""The most frequent words; an input says which of them occur."""
TOPICS = 10
"""The most frequent topics; the wires of the other 36 are left out."""
_FIRST_WORD = 4
"""Keras's smaller indices are no words: padding, the beginning, unknown words, none."""


def load_reuters() -> ExampleSet:
    """Load training and test wires, uint8 [n, 1000]: 1 where a word occurs; 10 topics.

    Topics are numbered by how frequent they are. The file is Keras's reuters.npz, below the folder
    that the environment variable KERAS_HOME names.

    Raises:
        UserError: The file is not there and cannot be downloaded.
    """
    import keras

    try:
        train, test = keras.datasets.reuters.load_data(num_words=WORDS + _FIRST_WORD)
    except Exception as error:  # Network, proxy and checksum raise unrelated errors.
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 200)
        raise UserError(
            f"the newswires of Reuters are not in Keras's folder and could not be downloaded "
            f"({reason}): on a machine with a connection run "
            f'python -c "import keras; keras.datasets.reuters.load_data()" and bring its '
            "~/.keras/datasets/reuters.npz here, to the same place or below KERAS_HOME/datasets; "
            "the digits and tables need no download"
        ) from error
    counts = np.bincount(train[1])
    topics = np.argsort(-counts, kind="stable")[:TOPICS]
    parts = [_examples(wires, labels, topics) for wires, labels in (train, test)]
    return ExampleSet(parts[0], parts[1], PixelScaling(1.0))


def _examples(wires: np.ndarray, labels: np.ndarray, topics: np.ndarray) -> Examples:
    numbers = np.full(max(labels.max(), topics.max()) + 1, -1, np.int32)
    numbers[topics] = np.arange(len(topics))
    kept = np.flatnonzero(numbers[labels] >= 0)
    inputs = np.zeros((len(kept), WORDS), np.uint8)
    for row, wire in enumerate(kept):
        words = np.array(wires[wire], np.int64) - _FIRST_WORD
        inputs[row, words[words >= 0]] = 1
    return Examples(inputs, numbers[labels[kept]])
