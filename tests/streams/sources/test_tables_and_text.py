"""The tables of scikit-learn and the newswires of Reuters, from a small corpus."""

import keras
import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.streams import load_stream
from nccl_tf.streams.sources.reuters import WORDS, load_reuters
from nccl_tf.streams.sources.tables import load_breast_cancer, load_diabetes


@pytest.mark.parametrize(
    ("name", "shape", "classes", "counts"),
    [("breast_cancer", (30,), (0, 1), (455, 114)), ("diabetes", (10,), (), (354, 88))],
)
def test_tables_are_cut_into_domains(name, shape, classes, counts):
    stream = load_stream(name)
    assert (len(stream), stream.example_shape, stream.example_dtype) == (5, shape, "float32")
    assert stream[0].classes == classes and stream.pixels.scale == 1
    assert sum(task.num_train for task in stream) == counts[0]
    assert sum(len(task.test.labels) for task in stream) == counts[1]
    sizes = [task.num_train for task in stream]
    assert max(sizes) - min(sizes) < 25  # many are of one age


@pytest.mark.parametrize(("load", "column"), [(load_breast_cancer, 9), (load_diabetes, 0)])
def test_tables_are_standardised_and_ordered_by_their_column(load, column):
    table = load()
    np.testing.assert_allclose(table.train.inputs.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(table.train.inputs.std(axis=0), 1, atol=1e-5)
    for part, values in zip((table.train, table.test), table.domains, strict=True):
        order = np.corrcoef(part.inputs[:, column], values)[0, 1]
        assert order == pytest.approx(1)
    if not table.has_classes:
        assert (abs(table.train.labels.mean()) < 1e-6, table.train.labels.std()) == (True, 1)


def corpus(num_words):
    """12 topics, of which 11 and 3 are rare; the words of a wire are its topic's, after a start."""
    topics = np.repeat(np.arange(12), [20 - t if t not in (3, 11) else 1 for t in range(12)])
    wires = [[1, 4 + t, num_words - 1, 2] for t in topics]
    assert num_words == WORDS + 4
    return (np.array(wires, object), topics), (np.array(wires[::3], object), topics[::3])


def test_reuters_says_which_words_occur_in_frequent_topics(monkeypatch):
    monkeypatch.setattr(keras.datasets.reuters, "load_data", corpus)
    wires = load_reuters()
    assert wires.train.inputs.dtype == np.uint8 and wires.train.inputs.shape[1] == WORDS
    kept = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    np.testing.assert_array_equal(np.bincount(wires.train.labels), [20 - t for t in kept])
    for words, label in zip(*wires.train, strict=True):
        assert np.flatnonzero(words).tolist() == [kept[label], WORDS - 1]
    stream = load_stream("reuters", head="multi")
    assert [len(task.classes) for task in stream] == [2] * 5


def test_reuters_that_cannot_be_downloaded_says_what_to_do(monkeypatch):
    def fail(num_words):
        raise Exception("URL fetch failure")

    monkeypatch.setattr(keras.datasets.reuters, "load_data", fail)
    with pytest.raises(UserError, match=r"URL fetch.*reuters\.npz here.*KERAS_HOME"):
        load_stream("reuters")
