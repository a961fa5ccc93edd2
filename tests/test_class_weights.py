"""Factors of classes, by number or name, and those of labels of every form."""

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.class_weights import ClassWeights, numbered
from nccl_tf.errors import UserError


def test_factors_are_looked_up_by_labels_of_every_form():
    weights = ClassWeights()
    weights.set({0: 0.5, 2: 30.0}, 3)
    for labels in (
        np.array([2, 1, 0]), np.array([[2], [1], [0]]), np.array([2.0, 1.0, 0.0]),
        np.array([[2.0], [1.0], [0.0]], np.float32), np.eye(3)[[2, 1, 0]],
    ):  # fmt: skip
        assert weights.of(tf.constant(labels)).numpy().tolist() == [30.0, 1.0, 0.5]
    assert np.isfinite(weights.of(tf.constant([-1, 99]))).all()  # examples of weight 0
    weights.set({}, 3)
    assert weights.of(tf.constant([2, 0])).numpy().tolist() == [1.0, 1.0]


def test_a_share_of_class_1_weighs_what_the_nearer_class_does():
    weights = ClassWeights()
    weights.set({1: 4.0}, 2)
    shares = tf.constant([0.2, 0.5, 0.7, 1.0])
    assert weights.of(shares).numpy().tolist() == [1.0, 1.0, 4.0, 4.0]


def test_graphs_change_at_the_first_factors_and_where_there_are_more_classes():
    weights, labels = ClassWeights(), tf.constant([1, 3], tf.int64)
    batch = Batch(tf.zeros([2, 1]), labels, tf.zeros([2], tf.int64), tf.constant([1.0, 2.0]))
    assert not weights.are_set
    assert weights.set({1: 4.0}, 2) and weights.are_set
    assert not weights.set({}, 2) and not weights.set({0: 3.0}, 2)
    assert weights.set({3: 5.0}, 4)
    assert weights.weighed(batch).weights.numpy().tolist() == [1.0, 10.0]


def test_classes_have_numbers_or_names():
    given = {"dog": 3.0, np.int64(2): np.float32(0.5), 0: 1}
    assert numbered(given, 3, ("cat", "dog", "emu")) == {1: 3.0, 2: 0.5}
    assert numbered(None, 3) == numbered({}, 3) == numbered({1: 1.0}, 3) == {}


@pytest.mark.parametrize(
    ("given", "names", "said"),
    [
        ({3: 2.0}, None, "the class 3, expected numbers of classes from 0 to 2:"),
        ({-1: 2.0}, None, "the class -1"),
        ({1.5: 2.0}, None, "the class 1.5"),
        ({"cat": 2.0}, None, "the class 'cat'"),
        ({"cow": 2.0}, ("cat", "dog", "emu"), "or names such as 'cat'"),
        ({1: -1.0}, None, r"class_weight=\{1: -1.0\}"),
        ({1: np.nan}, None, "finite number of 0 or more"),
        ({1: "much"}, None, "finite number of 0 or more"),
        ([1.0, 2.0, 3.0], None, r"dict\(enumerate\(weights\)\)"),
    ],
)
def test_what_is_no_class_or_no_factor_is_refused(given, names, said):
    with pytest.raises(UserError, match=said):
        numbered(given, 3, names)
