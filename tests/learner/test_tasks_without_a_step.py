"""A task that ends before a batch has come leaves a learner as it was."""

import keras
import pytest

import nccl_tf
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network

WITH_MEMORIES = {
    "gdumb": lambda: nccl_tf.GDumb(tiny_network(), nccl_tf.BalancedMemory(12, TASK_CLASSES)),
    "icarl": lambda: nccl_tf.ICaRL(tiny_network(), nccl_tf.ExemplarMemory(12)),
    "mc_sgd": lambda: nccl_tf.MCSGD(tiny_network(), nccl_tf.RingMemory(2, TASK_CLASSES)),
}


@pytest.mark.parametrize("name", WITH_MEMORIES)
def test_it_ends_and_the_next_one_is_learned(name):
    learner = WITH_MEMORIES[name]()
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.begin_task(0)
    learner.end_task()
    learner.fit(tiny_batches(1, 10), task_id=1, verbose=0)
    assert int(learner.progress.tasks_ended.numpy()) == 2
