"""Data of every form are told apart, converted and checked in one place."""

import keras
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.user_data import (
    ARRAYS,
    BATCHES,
    DATASET,
    SEQUENCE,
    as_columns,
    check_counts,
    check_data,
    check_ends,
    class_names_of,
    form_of,
)

X, Y = np.zeros((6, 3), np.float32), np.arange(6) % 2
PAIRS = tf.data.Dataset.from_tensor_slices((X, Y))
RAGGED = tf.ragged.constant([[1.0], [1.0, 2.0]])


class Sequence(keras.utils.PyDataset):
    """A sequence without a length has no end."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    @property
    def num_batches(self):
        return self.count

    def __getitem__(self, index):
        return X, Y


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (X, ARRAYS),
        (tf.constant(X), ARRAYS),
        (RAGGED, ARRAYS),
        ({"inputs": X, "task": Y}, ARRAYS),
        ((X, X), ARRAYS),
        ([X, X], ARRAYS),
        (PAIRS.batch(2), DATASET),
        (Sequence(1), SEQUENCE),
        ((pair for pair in [(X, Y)]), BATCHES),
        ([(1, 2)], BATCHES),
    ],
)
def test_the_form_of_data(data, form):
    assert form_of(data) == form


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "no data"),
        (X[:0], "no examples"),
        ({"a": X[:0]}, "no examples"),
        ([], "no examples"),
        (PAIRS.batch(2).take(0), "no examples"),
        (PAIRS, "single examples"),
        (np.ma.masked_equal(Y, 1), "3 masked"),
        (RAGGED, "ragged"),
        (tf.data.Dataset.from_tensors(RAGGED), "ragged"),
        (tf.sparse.from_dense(X), "sparse"),
        (scipy.sparse.csr_matrix(X), "sparse"),
        ({"a": X, "b": scipy.sparse.coo_array(X)}, "sparse"),
    ],
)
def test_what_no_verb_takes_is_refused(data, said):
    with pytest.raises(UserError, match=said):
        check_data(data, form_of(data))


@pytest.mark.parametrize("data", [X, {"a": X}, PAIRS.batch(2), Sequence(1), iter([(X, Y)])])
def test_what_a_verb_takes_is_not(data):
    check_data(data, form_of(data))


def test_data_without_an_end_cannot_be_read_whole():
    for endless in (PAIRS.batch(2).repeat(), Sequence(None)):
        with pytest.raises(UserError, match="without an end"):
            check_ends(endless)
    for ended in (PAIRS.batch(2), PAIRS.batch(2).filter(lambda x, y: True), Sequence(3)):
        check_ends(ended)


def test_there_is_a_label_for_each_example():
    check_counts({"a": X, "b": X}, Y)
    with pytest.raises(UserError, match=r"5 labels for \[6\] inputs"):
        check_counts(X, Y[1:])
    with pytest.raises(UserError, match=r"6 labels for \[5, 6\] inputs"):
        check_counts((X, X[1:]), Y)
    with pytest.raises(UserError, match="no examples"):
        check_counts(X[:0], Y[:0])


def test_columns_are_what_keras_takes():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]}, dtype="Int64")
    np.testing.assert_array_equal(as_columns(frame), [[1, 3], [2, 4]])
    np.testing.assert_array_equal(as_columns(pd.Series([0.5, 2.0])), [0.5, 2.0])
    assert isinstance(as_columns([X, X]), tuple)
    text = as_columns({"words": np.array(["one", "two"])})["words"]
    assert text.dtype == tf.string and text.numpy().tolist() == [b"one", b"two"]
    data = PAIRS.batch(2)
    assert as_columns(data) is data and as_columns(None) is None


def test_names_of_classes_are_in_the_order_of_their_numbers():
    data = PAIRS.batch(2)
    assert class_names_of(data) == class_names_of(X) == []
    data.class_names = ["cat", "dog"]
    assert class_names_of(data) == ["cat", "dog"]
    old = type("Old", (), {"class_indices": {"dog": 1, "cat": 0}})()
    assert class_names_of(old) == ["cat", "dog"]
