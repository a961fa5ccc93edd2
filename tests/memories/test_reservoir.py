import pytest
import tensorflow as tf
from scipy import stats

from nccl_tf.errors import UserError
from nccl_tf.memories.reservoir import ReservoirMemory


def inclusion_pvalue(rule: str, as_memory_batch, passes=1, streams=4000) -> float:
    """Chi-square of how often each of 30 examples ends in a reservoir of 5, over many streams.

    The first 12 come in one pass, the others in several, of which the first one stores.
    """
    memory = ReservoirMemory(5, (1, 1, 1), rule=rule, seed=3)
    stream = as_memory_batch(list(range(30)), [0] * 30, list(range(30)))

    @tf.function
    def count(streams):
        stored = tf.zeros(30, tf.int64)
        for _ in tf.range(streams):
            memory.seen.value.assign(0)
            for number in range(passes):
                memory.set_stores(number == 0)
                for start in range(12 * (number > 0), 30, 6):
                    memory.write(stream.map(lambda part, i=start: part[i : i + 6]))
            memory.set_stores(True)
            stored += tf.math.bincount(
                memory.labels.value[:5], minlength=30, maxlength=30, dtype=tf.int64
            )
        return stored

    return stats.chisquare(count(tf.constant(streams)).numpy()).pvalue


def test_inclusion_is_uniform(as_memory_batch):
    assert inclusion_pvalue("exact", as_memory_batch) > 1e-3


def test_passes_that_store_nothing_leave_it_uniform(as_memory_batch):
    assert inclusion_pvalue("exact", as_memory_batch, 2, 2000) > 1e-3


def test_the_off_by_one_rule_is_not_uniform(as_memory_batch):
    assert inclusion_pvalue("off_by_one", as_memory_batch) < 1e-6


def test_below_capacity_everything_is_stored_in_order(as_memory_batch):
    memory = ReservoirMemory(8, (1, 1, 1))
    memory.write(as_memory_batch([1, 2, 3], [0, 0, 1], [10, 20, 30]))
    assert memory.labels.numpy()[:3].tolist() == [1, 2, 3]
    drawn = memory.read(3)
    assert sorted(drawn.inputs.numpy().ravel().tolist()) == [10, 20, 30]
    assert drawn.weights.numpy().tolist() == [1, 1, 1]


def test_padding_is_neither_stored_nor_counted(as_memory_batch):
    memory = ReservoirMemory(8, (1, 1, 1))
    memory.write(as_memory_batch([1, 9, 2], [0, 0, 0], [10, 99, 20], [1.0, 0.0, 1.0]))
    assert int(memory.seen.numpy()) == 2
    assert memory.labels.numpy()[:3].tolist() == [1, 2, 0]


def test_fewer_than_asked_are_repeated_with_one_weight_each(as_memory_batch):
    memory = ReservoirMemory(8, (1, 1, 1))
    assert memory.read(4).weights.numpy().tolist() == [0, 0, 0, 0]
    memory.write(as_memory_batch([1, 2], [0, 0], [10, 20]))
    drawn = memory.read(5)
    assert drawn.labels.numpy().tolist() == [1, 2, 1, 2, 1]
    assert drawn.weights.numpy().tolist() == [1, 1, 0, 0, 0]


def test_all_that_is_stored_is_read_once(as_memory_batch):
    memory = ReservoirMemory(8, (1, 1, 1))
    assert len(memory.read_all().labels) == 0
    memory.write(as_memory_batch([1, 2, 0], [0, 0, 1], [10, 20, 30]))
    stored = memory.read_all()
    assert (stored.labels.tolist(), stored.tasks.tolist()) == ([1, 2, 0], [0, 0, 1])
    assert stored.inputs.ravel().tolist() == [10, 20, 30] and stored.weights.tolist() == [1, 1, 1]
    memory.write(as_memory_batch([3] * 9, [1] * 9, list(range(40, 49))))
    assert len(memory.read_all().labels) == 8
    with pytest.raises(UserError, match="has seen no fit"):
        ReservoirMemory(8).read_all()


def test_example_dtype_must_match(as_memory_batch):
    memory = ReservoirMemory(8, (1, 1, 1), example_dtype="float32")
    with pytest.raises(UserError, match="uint8 inputs, but the memory stores float32"):
        memory.write(as_memory_batch([1], [0], [10]))


@pytest.mark.parametrize("arguments", [{"capacity": 0}, {"capacity": 5, "rule": "exakt"}])
def test_bad_arguments(arguments):
    with pytest.raises(UserError):
        ReservoirMemory(example_shape=(1, 1, 1), **arguments)


def test_more_slots_than_the_machine_has_room_for_are_refused():
    with pytest.raises(UserError, match=r"ReservoirMemory of 1,099,511,627,776 slots, of which"):
        ReservoirMemory(2**40, (28, 28, 1))
