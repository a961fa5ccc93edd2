"""DER and DER++ against steps worked out by hand, and what their memory keeps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf import DERpp, ReservoirMemory, UserError
from nccl_tf.batch import Batch
from tests.methods.hand import (
    ALPHA,
    MEMORY,
    STREAM,
    WEIGHTS,
    FixedMemory,
    gradient,
    network,
    one_step,
)
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network

EXTRAS = {"logits": ((3,), "float32")}
STORED = np.random.default_rng(0).normal(size=(3, 3))


def test_a_step_of_der_by_hand():
    """g + a d/dW mean (XW - z)^2 over examples and logits, whatever the labels."""
    memory = FixedMemory(MEMORY[0], 2 - MEMORY[1])
    memory.held = memory.held._replace(extras={"logits": tf.constant(STORED)})
    memory.extras = EXTRAS
    learner = nccl_tf.DER(network(), memory, memory_batch_size=3)
    flat = MEMORY[0].reshape(3, 4)
    dark = 2 * flat.T @ (flat @ WEIGHTS - STORED) / STORED.size
    expected = WEIGHTS - ALPHA * (gradient(*STREAM) + 0.5 * dark)
    np.testing.assert_allclose(one_step(learner), expected, rtol=1e-12)


DARK, LABELS = 0.25, 0.75  # exact in float32


class TwoReads(FixedMemory):
    """Gives the stored logits with its first draw, and other examples with its second."""

    def __init__(self):
        images, labels = MEMORY
        super().__init__(images, labels)
        self.extras = EXTRAS
        self.reads = [self._rows(images, labels), self._rows(images[::-1], labels[::-1])]

    def _rows(self, images, labels):
        columns = images, labels.astype(np.int64), np.zeros(3, np.int64), np.ones(3, np.float32)
        return Batch(*map(tf.constant, columns), extras={"logits": tf.constant(STORED)})

    def read(self, count):
        return self.reads.pop(0)


def test_a_step_of_derpp_by_hand():
    """g + a d/dW mean (XW - z)^2 over examples and logits + b f on the second draw."""
    learner = DERpp(network(), TwoReads(), memory_batch_size=3, der_alpha=DARK, der_beta=LABELS)
    flat = MEMORY[0].reshape(3, 4)
    dark = 2 * flat.T @ (flat @ WEIGHTS - STORED) / STORED.size
    labels = gradient(MEMORY[0][::-1], MEMORY[1][::-1])
    expected = WEIGHTS - ALPHA * (gradient(*STREAM) + DARK * dark + LABELS * labels)
    np.testing.assert_allclose(one_step(learner), expected, rtol=1e-12)


def test_the_memory_keeps_raw_logits_from_before_the_update():
    extras = {"logits": ((4,), "float32")}
    memory = ReservoirMemory(5, IMAGE_SHAPE, extras=extras)
    learner = DERpp(tiny_network(), memory, heads=((0, 1), (2, 3)), memory_batch_size=2)
    learner.compile(keras.optimizers.SGD(0.5), run_eagerly=True)
    batch = next(iter(tiny_batches(0)))
    before = learner.network(batch[0]["inputs"]).numpy()
    learner.fit(tiny_batches(0).take(1), verbose=0)
    stored = memory.rows(tf.range(5), tf.ones(5))
    rows = [np.argmin(np.abs(before - one).sum(axis=1)) for one in stored.extras["logits"].numpy()]
    np.testing.assert_allclose(stored.extras["logits"], before[rows], rtol=1e-6)
    np.testing.assert_array_equal(stored.inputs, batch[0]["inputs"].numpy()[rows])


def test_a_memory_without_shapes_gets_the_column():
    learner = DERpp(tiny_network(), ReservoirMemory(5), memory_batch_size=2)
    learner.compile(keras.optimizers.SGD(0.5), run_eagerly=True)
    assert np.isfinite(learner.fit(tiny_batches(0, 15), verbose=0).history["logits_loss"]).all()
    assert np.any(learner.memory.columns["logits"].numpy())


@pytest.mark.parametrize("extras", [None, EXTRAS])
def test_a_memory_without_the_column_is_refused(extras):
    memory = ReservoirMemory(5, IMAGE_SHAPE, extras=extras)
    with pytest.raises(UserError, match=r"column 'logits' .* \(4,\).*extras=\{'logits': \(\(4,\)"):
        DERpp(tiny_network(), memory)
