import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.ring import RingMemory


def ring(slots=2, classes=((0, 1), (0, 1))) -> RingMemory:
    return RingMemory(slots, classes, (1, 1, 1))


def contents(memory: RingMemory) -> list[int]:
    slots = memory.readable.numpy()[: int(memory.num_readable.numpy())]
    return sorted(memory.inputs.numpy().ravel()[slots].tolist())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 9))
def test_holds_the_last_m_of_each_class(labels, slots, batch_size):
    memory = ring(slots, ((0, 1, 2),))
    pixels = list(range(1, len(labels) + 1))
    for start in range(0, len(labels), batch_size):
        part = slice(start, start + batch_size)
        count = len(labels[part])
        memory.write(
            Batch(
                tf.reshape(tf.constant(pixels[part], tf.uint8), [count, 1, 1, 1]),
                tf.constant(labels[part]),
                tf.zeros(count, tf.int64),
                tf.ones(count),
            )
        )
    memory.close_task(0)
    expected = [
        pixel
        for c in range(3)
        for pixel in [p for p, label in zip(pixels, labels, strict=True) if label == c][-slots:]
    ]
    assert contents(memory) == sorted(expected)


def test_nothing_is_readable_before_the_task_has_ended(as_memory_batch):
    memory = ring()
    memory.write(as_memory_batch([0, 1], [0, 0], [1, 2]))
    assert memory.read(2).weights.numpy().tolist() == [0, 0]
    memory.close_task(0)
    assert contents(memory) == [1, 2]
    memory.write(as_memory_batch([0, 1], [1, 1], [3, 4]))
    assert contents(memory) == sorted(memory.read_all().inputs.ravel().tolist()) == [1, 2]


def test_what_a_task_has_stored_waits_for_its_own_end(as_memory_batch):
    memory = ring()
    memory.write(as_memory_batch([0, 1], [0, 1], [1, 2]))
    memory.close_task(0)
    assert contents(memory) == [1]


def test_all_tasks_are_read_but_the_open_one(as_memory_batch):
    memory = ring()
    memory.write(as_memory_batch([0, 1, 1], [0, 0, 0], [1, 2, 3]))
    memory.close_task(0)
    memory.write(as_memory_batch([0, 1], [1, 1], [4, 5]))
    rows = memory.read_tasks()
    assert rows.weights.numpy().tolist() == [[1, 0, 1, 1], [0, 0, 0, 0]]
    assert rows.inputs[0].numpy().ravel()[[0, 2, 3]].tolist() == [1, 2, 3]
    assert memory.read_task(tf.constant(1)).weights.numpy().tolist() == [1, 0, 1, 0]


def test_the_same_label_in_a_new_task_has_its_own_slots(as_memory_batch):
    memory = ring(slots=1)
    memory.write(as_memory_batch([0, 0], [0, 1], [5, 6]))
    memory.close_task(0)
    memory.close_task(1)
    assert contents(memory) == [5, 6]


def test_closing_twice_changes_nothing(as_memory_batch):
    memory = ring()
    memory.write(as_memory_batch([0], [0], [5]))
    memory.close_task(0)
    before = [v.numpy() for v in memory.variables]
    memory.close_task(0)
    for old, new in zip(before, memory.variables, strict=True):
        np.testing.assert_array_equal(old, new.numpy())


def test_padding_and_classes_of_no_task_are_not_stored(as_memory_batch):
    memory = ring(slots=3, classes=((0, 2),))
    memory.write(as_memory_batch([0, 1, 7, 2], [0, 0, 0, 0], [1, 2, 3, 4], [1.0, 1.0, 1.0, 0.0]))
    memory.close_task(0)
    assert contents(memory) == [1]


def test_capacity_is_exactly_the_slots_of_all_tasks():
    memory = RingMemory(5, [range(10)] * 20, (28, 28, 1))
    assert memory.capacity == 1000
    assert memory.inputs.shape == (1001, 28, 28, 1) and memory.inputs.dtype == "uint8"


def test_survives_serialization():
    memory = ring(3)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(memory))
    assert copy.get_config() == memory.get_config()


def test_a_shape_without_classes_is_refused():
    with pytest.raises(UserError, match="task_classes too, or leave example_shape out"):
        RingMemory(5, example_shape=(1, 1, 1))


def test_bad_arguments_and_an_unknown_task():
    with pytest.raises(UserError, match="0 slots per class"):
        ring(0)
    with pytest.raises(ValueError, match="built for 2 tasks"):
        ring().close_task(2)
