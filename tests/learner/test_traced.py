"""How often steps are traced, and what is left of their graphs when a learner is deleted."""

import gc

import keras
import numpy as np
import pytest
from tensorflow.python.framework.func_graph import FuncGraph

import nccl_tf

X = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")


def replay(outputs: int, **more) -> nccl_tf.ExperienceReplay:
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(outputs)])
    learner = nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(5), **more)
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    return learner


def operations() -> int:
    return sum(len(o.get_operations()) for o in gc.get_objects() if isinstance(o, FuncGraph))


def test_the_graphs_of_a_deleted_learner_are_empty():
    gc.collect()
    before = operations()
    learner = replay(2)
    learner.fit(X, np.arange(12) % 2, batch_size=4, verbose=0)
    learner.evaluate(X, np.arange(12) % 2, verbose=0)
    learner.predict(X, verbose=0)
    assert operations() > before
    del learner
    gc.collect()
    assert operations() <= before


@pytest.mark.parametrize(
    ("outputs", "more", "traces"),
    [
        (1, {}, 4),
        (20, {}, 1),
        (20, {"stream_mask": "seen"}, 1),
        (4, {"heads": [[0], [1], [2], [3]]}, 1),
    ],
)
def test_classes_that_come_one_at_a_time(outputs, more, traces):
    """Each growth of the head is a trace; outputs and heads to spare have one for all classes."""
    learner = replay(outputs, **more)
    for number in range(4):
        if number == learner.num_classes:
            learner.add_classes(1)
        learner.fit(X, np.full(12, number), batch_size=4, task_id=number, verbose=0)
    assert learner.execution.traces == traces
    assert learner.progress.seen_classes.numpy()[:4].all()
