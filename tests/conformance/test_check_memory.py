"""The checks of a memory: each finds a class that breaks what it is about."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.conformance.memories import ITEMS
from nccl_tf.errors import UserError

BROKEN: dict[str, type] = {}
"""A class that fails an item, by the item."""


def breaks(*items: str):
    def add(cls):
        made = keras.saving.register_keras_serializable(package="broken")(cls)
        BROKEN.update(dict.fromkeys(items, made))
        return cls

    return add


@keras.saving.register_keras_serializable(package="tests")
class Own(nccl_tf.ReservoirMemory):
    """A memory that holds what it must.

    Args:
        powers: A list of numbers.

    Example:
        >>> memory = nccl_tf.ReservoirMemory(20)
    """

    def __init__(self, *args, powers=(1, 2), **kwargs):
        super().__init__(*args, **kwargs)
        self.powers = powers


@breaks("docstring")
class Silent(Own):
    pass


@breaks("arguments")
class Sorts(Own):
    def __init__(self, *args, powers=(), **kwargs):
        super().__init__(*args, powers=powers, **kwargs)
        powers.reverse()


@breaks("config")
class Forgets(Own):
    def get_config(self):
        config = super().get_config()
        del config["powers"]
        return config


@breaks("equal_seeds")
class Throws(Own):
    def slots_for(self, batch):
        return tf.constant(np.random.default_rng().integers(0, 6, len(batch.labels)))


@breaks("padding")
class Counts(Own):
    def slots_for(self, batch):
        return super().slots_for(batch._replace(weights=tf.ones_like(batch.weights)))


@breaks("memory_of_stream")
class Dims(Own):
    def write(self, batch):
        super().write(batch._replace(inputs=batch.inputs / 2))


@breaks("file", "learner", "graph")
class Turns(Own):
    """Counts calls in Python, which no file has, and of which a graph has one."""

    calls = 0

    def slots_for(self, batch):
        self.calls += 1
        return (super().slots_for(batch) + self.calls) % self.capacity


@breaks("add_classes")
class Empties(Own):
    def add_classes(self, classes, extras):
        super().add_classes(classes, extras)
        self.seen.assign(1)


@pytest.mark.parametrize("item", ITEMS)
def test_each_item_finds_a_class_that_breaks_it(item):
    with pytest.raises(UserError) as error:
        nccl_tf.check_memory(
            BROKEN[item], arguments={"powers": [2, 3]}, items=[item],
            write=lambda memory, batch: memory.write(batch),
        )  # fmt: skip
    title, said = str(error.value).split("\n")
    assert title.startswith(f"{BROKEN[item].__name__} fails 1 of 1 checks")
    assert said.startswith(f"  {item}: received ") and ", expected " in said


def offer(memory, batch):
    memory.offer(batch, tf.range(4.0) / 4 - 0.5, tf.constant(-1.0))


def replace(memory, batch):
    if np.any(batch.weights):
        rows = np.asarray(batch.weights) > 0
        labels, task = np.asarray(batch.labels)[rows], int(batch.tasks[0])
        inputs = np.asarray(batch.inputs)[rows]
        memory.replace_contents({int(c): (inputs[labels == c], task) for c in np.unique(labels)})


MEMORIES = {
    nccl_tf.RingMemory: {}, nccl_tf.BalancedMemory: {}, nccl_tf.ShortTermMemory: {},
    nccl_tf.EditedReservoirMemory: {}, nccl_tf.ScoredMemory: {"write": offer},
    nccl_tf.ExemplarMemory: {"write": replace},
    nccl_tf.ReservoirMemory: {"arguments": {"extras": {"logits": ((3,), "float32")}}},
    Own: {"arguments": {"exclude_current_task": True}},
}  # fmt: skip


@pytest.fixture(scope="module", params=MEMORIES, ids=lambda cls: cls.__name__)
def report(request):
    return nccl_tf.check_memory(request.param, raises=False, **MEMORIES[request.param])


@pytest.mark.parametrize("item", ITEMS)
def test_a_memory_does_what_every_memory_must(report, item):
    assert report[item].outcome in ("held", "excused"), report[item]
