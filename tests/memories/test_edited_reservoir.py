"""The reservoir whose pixels are edited."""

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.memories.edited_reservoir import EditedReservoirMemory
from nccl_tf.memories.reservoir import ReservoirMemory


def in_floats(batch):
    return batch._replace(inputs=tf.cast(batch.inputs, tf.float32))


@pytest.fixture
def memory(as_memory_batch):
    memory = EditedReservoirMemory(4, (1, 1, 1), seed=2)
    memory.write(in_floats(as_memory_batch([1, 2, 3, 4], [0, 0, 1, 1], [10, 20, 30, 40])))
    return memory


def images(*values):
    return tf.reshape(tf.constant(values, tf.float32), [-1, 1, 1, 1])


def test_an_edit_changes_pixels_and_age_of_its_slots_alone(memory):
    for _ in range(2):
        memory.edit(tf.constant([3, 1]), images(41.5, 20.25), tf.ones(2))
    assert memory.inputs.numpy().ravel()[:4].tolist() == [10, 20.25, 30, 41.5]
    assert memory.labels.numpy()[:4].tolist() == [1, 2, 3, 4]
    assert memory.tasks.numpy()[:4].tolist() == [0, 0, 1, 1]
    assert memory.read_ages(tf.range(4)).numpy().tolist() == [0, 2, 0, 2]
    assert int(memory.seen.numpy()) == 4


def test_padding_is_not_edited(memory):
    memory.edit(tf.constant([0, 1, 0]), images(5, 6, 7), tf.constant([1.0, 1.0, 0.0]))
    assert memory.inputs.numpy().ravel()[:2].tolist() == [5, 6]
    assert memory.read_ages(tf.range(4)).numpy().tolist() == [1, 1, 0, 0]


def test_a_new_example_has_age_0(memory, as_memory_batch):
    memory.edit(tf.range(4), images(1, 2, 3, 4), tf.ones(4))
    for first in range(50, 110, 6):
        memory.write(in_floats(as_memory_batch(range(6), [2] * 6, range(first, first + 6))))
    new = memory.tasks.numpy()[:4] == 2
    assert new.any()
    np.testing.assert_array_equal(memory.ages.numpy()[:4], np.where(new, 0, 1))


def test_padding_resets_no_age(memory, as_memory_batch):
    memory.edit(tf.range(4), images(1, 2, 3, 4), tf.ones(4))
    memory.write(in_floats(as_memory_batch([9] * 40, [2] * 40, [9] * 40, weights=[0.0] * 40)))
    assert memory.ages.numpy()[:4].tolist() == [1, 1, 1, 1]


def test_reads_are_those_of_a_reservoir_whatever_is_edited(memory, as_memory_batch):
    plain = ReservoirMemory(4, (1, 1, 1), seed=2)
    plain.write(as_memory_batch([1, 2, 3, 4], [0, 0, 1, 1], [10, 20, 30, 40]))
    for _ in range(5):
        memory.draw(2, memory.next_edit_seed())
        np.testing.assert_array_equal(memory.read(2).labels, plain.read(2).labels)
