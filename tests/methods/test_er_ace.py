"""ER-ACE against a step worked out by hand, and its limits."""

import numpy as np
import pytest

import nccl_tf
from tests.learner.test_stream_mask import masked_gradient
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, FixedMemory, network, one_step
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_network


def learner(**kwargs):
    return nccl_tf.ERACE(network(), FixedMemory(*MEMORY), memory_batch_size=3, **kwargs)


@pytest.mark.parametrize(
    ("arguments", "stream"), [({}, [0, 2]), ({"stream_mask": "all"}, [0, 1, 2])]
)
def test_a_step_by_hand(arguments, stream):
    """The stream's softmax over its own classes, the memory's over all; without mask it is ER."""
    gradient = masked_gradient(*MEMORY, [0, 1, 2]) + masked_gradient(*STREAM, stream)
    np.testing.assert_allclose(
        one_step(learner(**arguments)), WEIGHTS - ALPHA * gradient, rtol=1e-12
    )


def test_heads_leave_it_nothing():
    with pytest.raises(nccl_tf.UserError, match="a head is its mask already"):
        memory = nccl_tf.ReservoirMemory(4, IMAGE_SHAPE)
        nccl_tf.ERACE(tiny_network(), memory, heads=TASK_CLASSES)
