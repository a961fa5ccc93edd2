"""The mixed memory: general examples that stay, and a fixed share of them in every draw."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.memories.mixed import MixedMemory


def contents(memory):
    return sorted(memory.read_all().inputs.ravel().tolist())


def written(memory, batch_of, values, task=0):
    memory.write(batch_of([0] * len(values), [task] * len(values), values))


def test_general_examples_stay_and_have_their_share_of_every_draw(as_memory_batch):
    memory = MixedMemory(12, general=4, general_share=0.3, example_shape=(1, 1, 1))
    written(memory, as_memory_batch, range(10))
    general = contents(memory)
    assert len(general) == 4 and set(general) <= set(range(10))
    memory.close_task(0)
    draw = memory.read(10)
    assert draw.weights.numpy().tolist() == [1] * 3 + [0] * 7  # nothing else is stored yet
    for start in range(100, 160, 10):
        written(memory, as_memory_batch, range(start, start + 10), task=1)
    memory.close_task(1)
    kept = contents(memory)
    assert kept[:4] == general
    assert len(kept) == 12 and min(kept[4:]) >= 100
    for _ in range(5):
        rows = memory.read(10).inputs.numpy().ravel()
        assert (rows[:3] < 100).all() and len(set(rows[:3])) == 3
        assert (rows[3:] >= 100).all() and len(set(rows[3:])) == 7


def filled(batch_of, share):
    """20 general examples, 0 to 19, and 20 others, 20 to 39, each in the slot of its number."""
    memory = MixedMemory(40, general=20, general_share=share, example_shape=(1, 1, 1))
    for task, start in enumerate((0, 20)):
        written(memory, batch_of, range(start, start + 20), task)
        memory.close_task(task)
    return memory


@pytest.mark.parametrize(("share", "general"), [(0.1, 2), (0.15, 2), (0.08, 1), (0.5, 8)])
def test_a_share_is_rounded_to_whole_examples(as_memory_batch, share, general):
    rows = filled(as_memory_batch, share).read(16).inputs.numpy().ravel()
    assert (rows < 20).sum() == general


def test_the_parts_of_a_draw_are_independent(as_memory_batch):
    memory = filled(as_memory_batch, 0.5)
    draws = [np.sort(memory.read(8).inputs.numpy().ravel()).astype(int) for _ in range(30)]
    # Of 4,845 choices of four of twenty the two parts are hardly ever the same.
    assert sum((draw[:4] == draw[4:] - 20).all() for draw in draws) <= 1


def test_each_part_is_a_uniform_sample(as_memory_batch):
    counts = np.zeros(20)
    for seed in range(100):
        memory = MixedMemory(8, 4, example_shape=(1, 1, 1), seed=seed)
        for task in range(2):
            written(memory, as_memory_batch, range(10 * task, 10 * task + 10), task)
            memory.close_task(task)
        counts[contents(memory)] += 1
    # 100 times 4 of 10: 40, with a deviation of 4.9.
    assert (np.abs(counts - 40) < 5 * 4.9).all()


def test_what_is_remembered_first_is_general(tmp_path):
    inputs = np.arange(30, dtype="float32")[:, None]
    learner = nccl_tf.ExperienceReplay(
        keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)]), MixedMemory(9, 5, 0.5)
    )
    learner.compile("sgd")
    learner.remember(inputs[:5], np.zeros(5, int))
    learner.fit(inputs[5:], np.ones(25, int), task_id=0, batch_size=5, verbose=0)
    assert contents(learner.memory)[:5] == [0, 1, 2, 3, 4]
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    np.testing.assert_array_equal(
        loaded.memory.read(6).inputs.numpy(), learner.memory.read(6).inputs.numpy()
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((4, 4), "general=4"), ((4, 0), "general=0"), ((4, 2, 1.5), "general_share=1.5")],
)
def test_numbers_out_of_range_are_refused(arguments, said):
    with pytest.raises(UserError, match=said):
        MixedMemory(*arguments)
