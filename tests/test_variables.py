"""Writing and reading touch rows of a variable and never the whole of it."""

import pytest
import tensorflow as tf

from nccl_tf.memories.edited_reservoir import EditedReservoirMemory
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.memories.ring import RingMemory

MEMORIES = {
    "ring": lambda: RingMemory(5, [range(4)] * 3, (4, 4, 1)),
    "reservoir": lambda: ReservoirMemory(60, (4, 4, 1)),
    "past_reservoir": lambda: ReservoirMemory(60, (4, 4, 1), exclude_current_task=True),
    "edited_reservoir": lambda: EditedReservoirMemory(60, (4, 4, 1)),
}


@pytest.mark.parametrize("kind", MEMORIES)
def test_the_graph_neither_reads_nor_assigns_the_images_whole(kind):
    memory = MEMORIES[kind]()

    @tf.function(autograph=False)
    def step(images, labels):
        from nccl_tf.batch import Batch

        drawn = memory.read(3)
        memory.write(Batch(images, labels, tf.zeros_like(labels), tf.ones([6])))
        return drawn

    graph = step.get_concrete_function(
        tf.TensorSpec([6, 4, 4, 1], memory.example_dtype), tf.TensorSpec([6], tf.int64)
    ).graph
    handle = next(inner for outer, inner in graph.captures if outer is memory.inputs.value.handle)
    assert {op.type for op in handle.consumers()} == {"ResourceGather", "ResourceScatterUpdate"}
