"""The table of memories: what each row builds."""

import subprocess
import sys

import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.memories.kinds import MEMORIES, get_memory
from nccl_tf.methods.registry import METHODS

SHAPE, TASK_CLASSES = (2, 2, 1), ((0, 1), (2, 3))


def build(name):
    return get_memory(name).build(
        capacity=12, slots=3, rule="exact", task_classes=TASK_CLASSES, example_shape=SHAPE, seed=5
    )


@pytest.mark.parametrize("name", MEMORIES)
def test_every_row_builds_its_memory(name):
    memory = build(name)
    assert isinstance(memory, get_memory(name).memory_class())
    assert (memory.capacity, memory.example_shape, memory.seed) == (12, SHAPE, 5)


@pytest.mark.parametrize("name", MEMORIES)
def test_the_row_says_whether_the_open_task_is_read(name):
    assert build(name).reads_open_task is get_memory(name).reads_open_task


@pytest.mark.parametrize("name", MEMORIES)
def test_sizes_and_rule_reach_the_memory(name):
    row, config = get_memory(name), build(name).get_config()
    assert config.get("rule") == ("exact" if row.has_rule else None)
    assert config.get("exclude_current_task", False) is name.startswith("past")
    slots = {"per_class_and_task": ("slots_per_class", 3), "per_class": ("per_class", 3)}
    argument, value = slots.get(row.sizing, ("capacity", 12))
    assert config[argument] == value


def test_every_method_has_a_kind_of_the_table():
    assert {row.memory for row in METHODS.values()} - {None} == set(MEMORIES)


def test_the_tables_do_not_import_tensorflow():
    code = (
        "import sys, nccl_tf.memories.kinds, nccl_tf.methods.registry, nccl_tf.streams.catalog\n"
        "print('tensorflow' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("size", [2.5, "20", 0])
def test_a_size_is_a_whole_number_from_1(size):
    with pytest.raises(UserError, match=f"received a memory of {size!r} slots"):
        nccl_tf.ReservoirMemory(size)
    with pytest.raises(UserError, match=r"slots_per_class=|received a ring of 0 slots"):
        nccl_tf.RingMemory(size)


@pytest.mark.parametrize("classes", [5, [0, 1], [[0, 0.5]], "01"])
def test_classes_of_tasks_are_lists_of_numbers(classes):
    for make in (nccl_tf.RingMemory, nccl_tf.BalancedMemory):
        with pytest.raises(UserError, match=r"received task_classes=.* expected the class numbers"):
            make(5, classes)


def test_a_size_that_fills_no_argument_is_refused():
    with pytest.raises(UserError, match="'size'"):
        nccl_tf.MemoryKind(name="own", memory=nccl_tf.Memory, sized_by={"size": "capacity"})
