"""A stream without task boundaries: one plain `fit` over a generator of unknown length."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

STEPS = 40


def drifting():
    """Batches (images, labels) whose classes change on the way, without a word about it."""
    for task in range(len(TASK_CLASSES)):
        for inputs, labels, _ in tiny_batches(task, 5 * STEPS):
            yield inputs["inputs"].numpy(), labels.numpy()


def as_dataset():
    signature = (
        tf.TensorSpec((None, *IMAGE_SHAPE), tf.uint8),
        tf.TensorSpec((None,), tf.int64),
    )
    return tf.data.Dataset.from_generator(drifting, output_signature=signature)


def learner(cls=nccl_tf.NCCL, **kwargs):
    memory = nccl_tf.ReservoirMemory(20, IMAGE_SHAPE, seed=1)
    replay = {} if cls is nccl_tf.Finetune else {"memory": memory, "memory_batch_size": 5}
    model = cls(tiny_network(), **replay)
    model.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"], **kwargs)
    return model


def accuracy_on_the_beginning(model):
    return model.evaluate(tiny_batches(0, seed=9), verbose=0)[1]


def test_one_fit_over_a_generator_keeps_what_came_first():
    model = learner()
    model.fit(drifting(), verbose=0)
    assert int(model.memory.seen.numpy()) == 5 * STEPS * 2
    assert set(model.memory.labels.numpy()[:-1]) == {0, 1, 2, 3}
    assert accuracy_on_the_beginning(model) > 0.8
    assert model.execution.traces == 1


@pytest.mark.nightly
def test_generator_and_dataset_give_the_same_bits():
    cls = nccl_tf.ExperienceReplay
    models = [learner(cls), learner(cls, steps_per_execution=16)]
    for model, data in zip(models, (drifting, as_dataset), strict=True):
        model.fit(data(), verbose=0)
    for left, right in zip(*(m.get_weights() for m in models), strict=True):
        np.testing.assert_array_equal(left, right)
