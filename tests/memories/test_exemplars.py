"""Lists of exemplars that are cut from behind."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.memories.exemplars import ExemplarMemory


def images(*values):
    return np.array(values, np.uint8).reshape(-1, 1, 1, 1)


def as_lists(memory):
    return {c: (own.ravel().tolist(), task) for c, (own, task) in memory.contents().items()}


def test_lists_share_the_capacity_and_a_shorter_list_is_a_prefix():
    memory = ExemplarMemory(7, (1, 1, 1))
    memory.replace_contents({4: (images(9, 8, 7, 6, 5), 0)})
    assert as_lists(memory) == {4: ([9, 8, 7, 6, 5], 0)}
    memory.replace_contents({**memory.contents(), 2: (images(1, 2, 3, 4, 5), 1)})
    assert as_lists(memory) == {2: ([1, 2, 3], 1), 4: ([9, 8, 7], 0)}
    memory.replace_contents({**memory.contents(), 0: (images(40), 2)})
    assert as_lists(memory) == {0: ([40], 2), 2: ([1, 2], 1), 4: ([9, 8], 0)}
    assert int(memory.stored.numpy()) == 5


def test_a_fixed_length_does_not_depend_on_the_classes_so_far():
    memory = ExemplarMemory(8, (1, 1, 1), per_class=2)
    assert [memory.class_quota(classes) for classes in (1, 2, 4, 8)] == [2, 2, 2, 1]


def test_what_is_kept_can_be_read_with_its_task():
    memory = ExemplarMemory(4, (1, 1, 1))
    assert not memory.read(2).weights.numpy().any()
    memory.replace_contents({3: (images(30, 31), 1), 5: (images(50), 2)})
    drawn = memory.read(4)
    assert drawn.weights.numpy().tolist() == [1, 1, 1, 0]
    assert drawn.inputs.numpy().ravel()[:3].tolist() == [30, 31, 50]
    assert drawn.labels.numpy()[:3].tolist() == [3, 3, 5]
    assert drawn.tasks.numpy()[:3].tolist() == [1, 1, 2]


def test_more_classes_than_slots_leave_no_exemplar():
    memory = ExemplarMemory(2, (1, 1, 1))
    memory.replace_contents({c: (images(c), 0) for c in range(3)})
    assert memory.contents() == {}


def test_no_slot_is_refused():
    with pytest.raises(UserError, match="a whole number of at least 1"):
        ExemplarMemory(0, (1, 1, 1))
