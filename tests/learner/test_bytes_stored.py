"""The bytes that a method keeps, counted by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.bytes_stored import bytes_stored
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import build
from tests.tiny import IMAGE_SHAPE, tiny_network

PIXELS, CLASSES, SLOTS = 16, 4, 12
WEIGHTS = (16 + 1) * 8 + (8 + 1) * 4
FLOAT, INTEGER = 4, 8
ROW = PIXELS + 2 * INTEGER  # bytes of a uint8 image, its label and its task
RESERVOIR = (SLOTS + 1) * ROW + 2 * INTEGER  # one spare row; how many were drawn, and seen
BY_HAND = {
    "finetune": 0,
    "er_reservoir": RESERVOIR,
    "nccl_reservoir": RESERVOIR,
    "der": RESERVOIR + (SLOTS + 1) * CLASSES * FLOAT,
    # Importances, anchors, their running mean and the sum of a window; the steps of a task.
    "ewc": 4 * WEIGHTS * FLOAT + INTEGER,
    # Two copies, and a sample of 2,500 examples of the task.
    "mas": 2 * WEIGHTS * FLOAT + 2501 * ROW + 2 * INTEGER,
    "si": 3 * WEIGHTS * FLOAT,
    "lwf": WEIGHTS * FLOAT + CLASSES,  # a truth value for each class: an old one or not
    "clser": RESERVOIR + 2 * WEIGHTS * FLOAT + INTEGER,
    "ncm": CLASSES * (8 + 1) * 8,  # a mean of 8 features and a count of float64 for each
}  # fmt: skip


@pytest.mark.parametrize(("name", "count"), BY_HAND.items())
def test_what_a_method_keeps_is_counted(name, count):
    assert bytes_stored(build(name)) == count


def test_an_average_and_trained_steps_count_what_they_keep():
    learner = nccl_tf.Finetune(tiny_network(), average_weights=0.9)
    learner.compile(keras.optimizers.Adam(0.01))
    images = np.zeros((10, *IMAGE_SHAPE), np.uint8)
    learner.fit(images, np.arange(10) % 2, verbose=0)
    # The average and its steps, without Adam's two moments.
    assert bytes_stored(learner) == WEIGHTS * FLOAT + INTEGER


def test_texts_count_their_characters():
    memory = nccl_tf.ReservoirMemory(2, (), "string")
    memory.write(
        nccl_tf.Batch(
            tf.constant(["ab", "cde"]), tf.zeros(2, tf.int64), tf.zeros(2, tf.int64), tf.ones(2)
        )
    )  # fmt: skip
    assert f"{5 + 3 * 2 * INTEGER + 2 * INTEGER} bytes" in memory.describe()


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if row.memory])
def test_a_method_keeps_at_least_its_memory(name):
    learner = build(name)
    memory = sum(v.numpy().nbytes for m in learner.memories() for v in m.variables)
    assert bytes_stored(learner) >= memory > 0
