"""DER against a step worked out by hand."""

import numpy as np
import tensorflow as tf

import nccl_tf
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

STORED = np.random.default_rng(0).normal(size=(3, 3))


def test_a_step_by_hand():
    """g + a d/dW mean (XW - z)^2 over examples and logits, whatever the labels."""
    memory = FixedMemory(MEMORY[0], 2 - MEMORY[1])
    memory.rows = memory.rows._replace(extras={"logits": tf.constant(STORED)})
    memory.extras = nccl_tf.DER.memory_extras(3)
    learner = nccl_tf.DER(network(), memory, memory_batch_size=3)
    flat = MEMORY[0].reshape(3, 4)
    dark = 2 * flat.T @ (flat @ WEIGHTS - STORED) / STORED.size
    expected = WEIGHTS - ALPHA * (gradient(*STREAM) + 0.5 * dark)
    np.testing.assert_allclose(one_step(learner), expected, rtol=1e-12)
