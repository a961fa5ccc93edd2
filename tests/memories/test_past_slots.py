"""The slots of ended tasks, and the reservoir that reads nothing else."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nccl_tf.memories.reservoir import PastSlots, ReservoirMemory

CAPACITY = 6
removals = st.lists(
    st.lists(st.integers(0, CAPACITY - 1), unique=True, max_size=4), min_size=1, max_size=5
)


def slots_of(capacity):
    return PastSlots(capacity, ReservoirMemory(capacity).state)


def contents(past):
    return sorted(past.slots_at(tf.range(int(past.count.numpy()))).numpy().tolist())


@given(st.integers(0, CAPACITY), removals)
@settings(deadline=None, max_examples=25)
def test_it_is_a_set_that_shrinks_by_what_is_removed(count, batches):
    past, expected = slots_of(CAPACITY), set(range(count))
    past.reset(count)
    for slots in batches:
        filled = [*slots, CAPACITY, CAPACITY]  # which stands for none
        past.remove(tf.constant(filled, tf.int64))
        expected -= set(slots)
        assert contents(past) == sorted(expected)
        order, position = past.order.numpy(), past.position.numpy()
        assert (np.sort(order) == np.arange(CAPACITY + 1)).all()
        assert (position[order[:CAPACITY]] == np.arange(CAPACITY)).all()


def test_refilling_forgets_what_was_removed():
    past = slots_of(CAPACITY)
    past.reset(4)
    past.remove(tf.constant([1, 3]))
    past.reset(5)
    assert contents(past) == [0, 1, 2, 3, 4]


def test_a_reservoir_reads_ended_tasks_alone(as_memory_batch):
    """And nothing that was overwritten."""
    memory = ReservoirMemory(8, (1, 1, 1), exclude_current_task=True, seed=1)
    memory.write(as_memory_batch(range(6), [0] * 6, range(6)))
    assert not memory.read(3).weights.numpy().any()
    memory.close_task(0)
    for first in range(0, 30, 6):
        labels = range(6 + first, 12 + first)
        memory.write(as_memory_batch(labels, [1] * 6, labels))
        drawn = memory.read(9)
        real = drawn.weights.numpy() == 1
        kept = memory.tasks.numpy()[:8] == 0
        assert sorted(drawn.labels.numpy()[real]) == sorted(memory.labels.numpy()[:8][kept])
    assert kept.sum() < 6
    memory.close_task(1)
    assert memory.read(9).weights.numpy().sum() == 8


def test_reads_are_uniform_over_what_is_left(as_memory_batch):
    memory = ReservoirMemory(CAPACITY, (1, 1, 1), exclude_current_task=True)
    memory.write(as_memory_batch(range(6), [0] * 6, range(6)))
    memory.close_task(0)
    memory.past.remove(tf.constant([0, 4]))

    @tf.function
    def count(reads):
        drawn = tf.zeros(6, tf.int64)
        for _ in tf.range(reads):
            drawn += tf.math.bincount(
                memory.read(2).labels, minlength=6, maxlength=6, dtype=tf.int64
            )
        return drawn

    drawn = count(tf.constant(2000)).numpy()
    assert drawn[0] == drawn[4] == 0
    assert stats.chisquare(drawn[[1, 2, 3, 5]]).pvalue > 1e-3
