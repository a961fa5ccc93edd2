"""The counters of a learner, by themselves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.learner.progress import Progress

pytestmark = pytest.mark.eager


def progress(classes=4):
    def state(name, shape, dtype, value=0):
        shape = shape() if callable(shape) else shape
        start = keras.initializers.Constant(value)
        return keras.Variable(start, shape, dtype, trainable=False, name=name)

    return Progress(state, lambda: classes)


def test_a_task_begins_once_and_is_followed_by_the_next_number():
    counters = progress()
    assert counters.next_task == 0
    assert counters.begin_task(0) and not counters.begin_task(0)
    assert counters.next_task == 0
    with pytest.raises(UserError, match="task 1"):
        counters.begin_task(1)
    counters.close_task()
    assert counters.next_task == 1


def test_padding_is_no_class_seen():
    counters = progress()
    labels, weights = tf.constant([0, 3, 2], tf.int64), tf.constant([1.0, 0.0, 2.0])
    counters.see(Batch(tf.zeros([3, 1]), labels, tf.zeros([3], tf.int64), weights))
    np.testing.assert_array_equal(counters.seen_classes.numpy(), [True, False, True, False])


@pytest.mark.parametrize("alone", [True, False])
def test_a_row_of_skipped_steps_ends_with_one_that_is_learned(alone):
    counters = progress()
    for is_learned in (False, False, True, False):
        counters.count_step(tf.constant(is_learned), alone)
    assert (int(counters.skipped.numpy()), int(counters.skipped_in_a_row.numpy())) == (3, 1)


def test_ten_skipped_steps_in_a_row_are_a_failure_which_begins_a_new_row():
    counters, network = progress(), keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.25)
    for _ in range(9):
        counters.count_step(tf.constant(False), True)
    counters.check_not_failed(network, optimizer)
    assert bool(counters.has_not_failed())
    counters.count_step(tf.constant(False), True)
    assert not bool(counters.has_not_failed())
    with pytest.raises(LearningFailedError, match=r"0\.25"):
        counters.check_not_failed(network, optimizer)
    assert bool(counters.has_not_failed())
