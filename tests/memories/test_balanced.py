"""The greedy balancing sampler: counts, evictions and what it refuses."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.balanced import BalancedMemory


def offer(memory, labels, tasks=None, batch_size=4):
    """Write single-pixel images that show their own number, from 1."""
    labels = np.asarray(labels, np.int64)
    tasks = np.zeros_like(labels) if tasks is None else np.asarray(tasks, np.int64)
    padding = -len(labels) % batch_size
    weights = np.r_[np.ones(len(labels)), np.zeros(padding)].astype(np.float32)
    pixels = np.r_[np.arange(1, len(labels) + 1), np.zeros(padding)].astype(np.uint8)
    labels, tasks = (np.r_[x, np.zeros(padding)].astype(np.int64) for x in (labels, tasks))
    for start in range(0, len(labels), batch_size):
        part = slice(start, start + batch_size)
        images = tf.reshape(tf.constant(pixels[part]), [batch_size, 1, 1, 1])
        memory.write(Batch(images, *(tf.constant(x[part]) for x in (labels, tasks, weights))))


def labels_of(memory):
    return memory.labels.numpy()[: int(memory.stored.numpy())]


def counts_of(memory, classes):
    return np.bincount(labels_of(memory), minlength=classes).tolist()


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(0, 3), st.randoms(use_true_random=False))
def test_every_order_gives_equal_counts(share, classes, spare, random):
    """With enough examples of each class."""
    labels = [c for c in range(classes) for _ in range(share + spare)]
    random.shuffle(labels)
    memory = BalancedMemory(share * classes, [list(range(classes))], (1, 1, 1))
    offer(memory, labels)
    assert counts_of(memory, classes) == [share] * classes
    stored = memory.inputs.numpy().ravel()[: share * classes]
    np.testing.assert_array_equal([labels[i - 1] for i in stored], labels_of(memory))
    assert len(set(stored.tolist())) == len(stored)


def test_classes_in_turn_end_with_counts_within_one():
    capacity = 13
    memory = BalancedMemory(capacity, [[0, 1], [2, 3], [4]], (1, 1, 1))
    labels = np.repeat(np.arange(5), 20)
    offer(memory, labels, np.array([0, 0, 1, 1, 2])[labels])
    counts = counts_of(memory, 5)
    assert sum(counts) == capacity and max(counts) - min(counts) <= 1


def test_a_class_never_gives_way_below_the_others():
    memory = BalancedMemory(6, [[0, 1, 2]], (1, 1, 1))
    offer(memory, [0, 0, 0, 0, 0, 1])
    assert counts_of(memory, 3) == [5, 1, 0]
    offer(memory, [0])
    assert counts_of(memory, 3) == [5, 1, 0]
    offer(memory, [1, 1, 1])
    assert counts_of(memory, 3) == [3, 3, 0]
    offer(memory, [2, 2, 2, 2])
    assert counts_of(memory, 3) == [2, 2, 2]


def test_a_random_one_of_the_largest_class_is_evicted():
    evicted = set()
    for seed in range(15):
        memory = BalancedMemory(4, [[0, 1]], (1, 1, 1), seed=seed)
        offer(memory, [0, 0, 0, 0])
        before = set(memory.inputs.numpy().ravel()[:4].tolist())
        offer(memory, [1])
        assert memory.stored.numpy() == 4
        evicted |= before - set(memory.inputs.numpy().ravel()[memory.labels.numpy() == 0].tolist())
    assert evicted == {1, 2, 3, 4}


def test_the_same_label_in_another_task_is_a_class_of_its_own():
    memory = BalancedMemory(6, [[0, 1], [0, 1]], (1, 1, 1))
    offer(memory, [0, 1] * 6)
    offer(memory, [0, 0], tasks=[1, 1])
    tasks, labels = memory.tasks.numpy()[:6], memory.labels.numpy()[:6]
    assert np.bincount(2 * tasks + labels).tolist() == [2, 2, 2]


def test_reads_what_it_stores_at_once():
    memory = BalancedMemory(4, [[0, 1]], (1, 1, 1))
    assert memory.read(3).weights.numpy().tolist() == [0, 0, 0]
    offer(memory, [1, 0])
    batch = memory.read(3)
    assert batch.weights.numpy().tolist() == [1, 1, 0]
    assert sorted(batch.labels.numpy()[:2].tolist()) == [0, 1]


def test_a_memory_of_no_slots_is_refused():
    with pytest.raises(UserError, match="at least 1"):
        BalancedMemory(0, [[0]], (1, 1, 1))


@pytest.mark.parametrize("task_classes", [[], [[], []]])
def test_a_memory_of_no_classes_is_refused(task_classes):
    with pytest.raises(UserError, match="the class numbers of each task"):
        BalancedMemory(4, task_classes)
