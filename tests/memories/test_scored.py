"""The memory of GSS: who is let in, and in whose place."""

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.memories.scored import ScoredMemory


def offer(memory, batch, cosines, batch_cosine):
    memory.offer(batch, tf.constant(cosines, tf.float32), tf.constant(float(batch_cosine)))


@pytest.fixture
def full(as_memory_batch):
    def make(cosines, seed=0):
        count = len(cosines)
        memory = ScoredMemory(count, (1, 1, 1), seed=seed)
        offer(memory, as_memory_batch(range(count), [0] * count, range(count)), cosines, 1.0)
        return memory

    return make


def test_while_there_is_room_everything_is_stored_with_its_score(as_memory_batch):
    memory = ScoredMemory(4, (1, 1, 1))
    batch = as_memory_batch([1, 9, 2], [0] * 3, [1, 9, 2], [1.0, 0.0, 1.0])
    offer(memory, batch, [0.5, 0.0, -0.5], 1.0)
    assert bool(memory.has_room())
    offer(memory, as_memory_batch([3, 4, 5], [1] * 3, [3, 4, 5]), [1.5, -1.5, 0.0], 1.0)
    assert memory.labels.numpy()[:4].tolist() == [1, 2, 3, 4]
    assert not bool(memory.has_room())
    np.testing.assert_allclose(memory.scores.numpy()[:4], [1.5, 0.5, 2.0, 0.0])


@pytest.mark.parametrize("batch_cosine", [0.0, 0.5])
def test_a_full_memory_takes_nothing_of_a_batch_that_is_like_it(
    full, as_memory_batch, batch_cosine
):
    memory = full([0.5, 0.9, 0.7])
    offer(memory, as_memory_batch([7, 8], [1, 1], [7, 8]), [-1.0, -1.0], batch_cosine)
    assert memory.labels.numpy()[:3].tolist() == [0, 1, 2]


def test_a_novel_example_replaces_those_of_high_score(full, as_memory_batch):
    """The stored example of the lowest score is met last."""
    memory = full([0.5, -0.9, 0.7])
    offer(memory, as_memory_batch([7, 8], [1, 1], [7, 8]), [-1.0, -1.0], -0.1)
    assert sorted(memory.labels.numpy()[:3]) == [1, 7, 8]
    np.testing.assert_allclose(np.sort(memory.scores.numpy()[:3]), [0, 0, 0.1], atol=1e-6)


def test_replacement_has_the_probability_of_the_scores(full, as_memory_batch):
    """Met slots have score 1.5 and the new one 0.5: replaced with probability 3/4."""
    memory = full([0.5] * 400)
    memory.scores.assign(np.append(np.full(400, 1.5), 0))
    memory.scores.value[0].assign(0.0)  # or no example would differ from the least
    offer(memory, as_memory_batch(range(300), [1] * 300, [0] * 300), [-0.5] * 300, -0.1)
    replaced = memory.tasks.numpy()[:400].sum()
    assert abs(replaced - 225) < 4 * np.sqrt(300 * 0.75 * 0.25)


def test_those_of_high_score_are_met_in_proportion(full, as_memory_batch):
    """Scores 0, 0.5 and 1: the third is met first with probability 1/(1 + 0.5)."""
    batch, met = as_memory_batch([9], [1], [9]), np.zeros(3)
    memory = full([-1.0, -0.5, 0.0])
    first = [(variable, variable.numpy()) for variable in memory.variables]

    @tf.function(autograph=False)
    def met_with(draws):
        for variable, value in first:
            variable.assign(value)
        memory.draws.assign(draws)
        offer(memory, batch, [-1.0], -0.1)
        return memory.tasks.value[:3]

    for draws in range(100, 500, 2):  # an offer draws twice
        met += met_with(tf.constant(draws, memory.draws.dtype)).numpy()
    assert met[0] == 0 and met.sum() == 200
    assert abs(met[2] - 400 / 3) < 4 * np.sqrt(200 * 2 / 9)


def test_padding_and_what_meets_no_slot_are_passed_over(full, as_memory_batch):
    memory = full([0.5, 0.9])
    batch = as_memory_batch([7, 8, 9], [1] * 3, [7, 8, 9], [0.0, 1.0, 1.0])
    offer(memory, batch, [-1.0] * 3, -0.1)
    assert 7 not in memory.labels.numpy()[:2] and int(memory.stored.numpy()) == 2
