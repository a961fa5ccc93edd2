"""Reads and writes of several steps at once, against one after the other."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf import ReservoirMemory, RingMemory
from nccl_tf.arguments.choices import RESERVOIR_RULES
from nccl_tf.batch import Batch
from nccl_tf.memories.ahead import WritesInTurn


def batches_of(steps: int, size: int, first: int, keeps=None) -> Batch:
    """Examples [steps, size] with pixels from `first` on; those that are not kept are padding."""
    pixels = np.arange(first, first + steps * size).reshape(steps, size)
    keeps = np.ones_like(pixels) if keeps is None else np.reshape(keeps, (steps, size))
    return Batch(
        tf.constant(pixels[..., None], tf.uint8),
        tf.constant(pixels % 3, tf.int32),
        tf.constant(pixels % 2, tf.int32),
        tf.constant(keeps, tf.float32),
    )


def batch_of(batches: Batch, i: int) -> Batch:
    return batches.map(lambda part: part[i])


def reservoirs(capacity: int, rule: str, seen: int):
    for _ in range(2):
        memory = ReservoirMemory(capacity, (1,), rule=rule, seed=5)
        memory.write(batch_of(batches_of(1, seen, 0), 0))
        yield memory


def rings(slots: int, stored: int):
    for _ in range(2):
        memory = RingMemory(slots, ((0, 1, 2), (0, 1, 2), (0,)), (1,), seed=5)
        past = batches_of(1, stored, 0)
        memory.write(batch_of(past._replace(labels=past.labels * 0, tasks=past.tasks * 0 + 2), 0))
        memory.close_task(2)
        yield memory


def assert_ahead_is_in_turn(ahead, in_turn, batches, start, count, skipped):
    """Steps from `start` to the one that is skipped, or all where it is None."""
    known = ahead.ahead(batches, tf.constant(start), count)
    steps = len(batches.weights)
    end = steps if skipped is None else skipped + 1
    for i in range(start, end):
        read = in_turn.read(count)
        for left, right in zip(batch_of(known.replays, i)[:4], read[:4], strict=True):
            np.testing.assert_array_equal(left, right)
        batch = batch_of(batches, i)
        in_turn.write(batch._replace(weights=batch.weights * (i != skipped)))
    known.keep(tf.constant(end), tf.constant(steps if skipped is None else skipped))
    for left, right in zip(ahead.variables, in_turn.variables, strict=True):
        np.testing.assert_array_equal(left, right, left.name)


@st.composite
def stacks(draw):
    """Batches with padding, a first step, the rows of a read, and the step that is skipped."""
    steps, size = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    keeps = draw(st.lists(st.booleans(), min_size=steps * size, max_size=steps * size))
    start = draw(st.integers(0, steps - 1))
    skipped = draw(st.none() | st.integers(start, steps - 1))
    return batches_of(steps, size, 100, keeps), start, draw(st.integers(1, 4)), skipped


@settings(max_examples=25)
@given(stacks(), st.integers(1, 12), st.integers(0, 20), st.sampled_from(RESERVOIR_RULES))
def test_a_reservoir_ahead_is_one_in_turn(stack, capacity, seen, rule):
    assert_ahead_is_in_turn(*reservoirs(capacity, rule, seen), *stack)


@settings(max_examples=10)
@given(stacks(), st.integers(1, 4), st.integers(0, 5))
def test_a_ring_ahead_is_one_in_turn(stack, slots, stored):
    assert_ahead_is_in_turn(*rings(slots, stored), *stack)


def test_ahead_a_slot_is_read_as_the_last_step_left_it():
    """One slot, and every example goes there: a read is the last example of the step before."""
    memory = ReservoirMemory(1, (1,), rule="off_by_one")
    batches = batches_of(2, 1, 7)
    replays = memory.ahead(batches, tf.constant(0), 1).replays
    assert replays.weights.numpy().tolist() == [[0], [1]]
    assert replays.inputs.numpy()[1].ravel().tolist() == [7]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_writes_in_turn_are_found_by_slot_and_time(slots, data):
    """Slot 4 is none."""
    writes, time = WritesInTurn(tf.constant(slots), 4), data.draw(st.integers(0, len(slots)))
    before = {slot: number for number, slot in enumerate(slots[:time]) if slot < 4}
    found = writes.last(tf.constant(time))
    assert dict(zip(*(part.numpy().tolist() for part in found), strict=True)) == before
    if time < len(slots):
        last = writes.before(tf.range(4), tf.fill([4], time))
        assert last.numpy().tolist() == [before.get(slot, -1) for slot in range(4)]


@pytest.mark.parametrize("arguments", [{"exclude_current_task": True}, {}])
def test_what_reads_depend_on_is_not_known_ahead(arguments):
    """With tasks left out, on the ends of tasks; in a subclass, on what it does itself."""

    class Own(ReservoirMemory):
        pass

    kind = ReservoirMemory if arguments else Own
    assert not kind(5, (1,), **arguments).can_look_ahead(np.zeros(3, np.int32))
    assert ReservoirMemory(5, (1,)).can_look_ahead(np.zeros(3, np.int32))
