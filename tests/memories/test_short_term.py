"""The short-term memory: in order until it is full, then nothing until it is cleared."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.memories.short_term import ShortTermMemory


def contents(memory):
    return memory.inputs.numpy().ravel()[: int(memory.stored.numpy())].tolist()


def test_keeps_what_comes_in_order_until_it_is_full(as_memory_batch):
    memory = ShortTermMemory(4, (1, 1, 1))
    memory.write(as_memory_batch([0, 1, 2], [0, 0, 0], [10, 11, 12]))
    assert contents(memory) == [10, 11, 12]
    memory.write(as_memory_batch([0, 1, 2], [1, 1, 1], [13, 14, 15]))
    memory.write(as_memory_batch([0], [1], [16]))
    assert contents(memory) == [10, 11, 12, 13]
    assert memory.labels.numpy()[:4].tolist() == [0, 1, 2, 0]
    assert memory.tasks.numpy()[:4].tolist() == [0, 0, 0, 1]


def test_padding_takes_no_slot(as_memory_batch):
    memory = ShortTermMemory(4, (1, 1, 1))
    memory.write(as_memory_batch([0, 1, 2], [0, 0, 0], [10, 11, 12], weights=[0.0, 1.0, 0.0]))
    memory.write(as_memory_batch([0, 1, 2], [0, 0, 0], [13, 14, 15], weights=[1.0, 0.0, 1.0]))
    assert contents(memory) == [11, 13, 15]


def test_cleared_it_begins_anew(as_memory_batch):
    memory = ShortTermMemory(2, (1, 1, 1))
    memory.write(as_memory_batch([0, 1], [0, 0], [10, 11]))
    memory.clear()
    assert contents(memory) == []
    assert memory.read(2).weights.numpy().tolist() == [0, 0]
    memory.write(as_memory_batch([1], [0], [12]))
    assert contents(memory) == [12]
    assert memory.read(2).weights.numpy().tolist() == [1, 0]


def test_a_memory_of_no_slots_is_refused():
    with pytest.raises(UserError, match="at least 1"):
        ShortTermMemory(0, (1, 1, 1))
