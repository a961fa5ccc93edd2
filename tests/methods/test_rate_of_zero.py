"""A schedule may end at a rate of 0: nothing moves, and no step is skipped."""

import keras
import numpy as np
import pytest

from tests.methods.learners import build
from tests.tiny import tiny_batches

DIVIDE_BY_IT = [
    ("nccl_ring", {"grad_scope": "layer"}),
    ("mer", {}),
    pytest.param("orthog_subspace", {}, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("name", "options"), DIVIDE_BY_IT)
def test_nothing_moves(name, options):
    learner = build(name, **options)
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([4], [0.1, 0.0])
    learner.compile(keras.optimizers.SGD(schedule), run_eagerly=True)
    learner.fit(tiny_batches(0, 20), task_id=0, verbose=0)
    learner.fit(tiny_batches(1, 5), task_id=1, verbose=0, end_task=False)
    before = learner.network.get_weights()
    learner.fit(tiny_batches(1, 20), task_id=1, verbose=0)
    assert int(learner.optimizer.iterations.numpy()) == 9
    for one, other in zip(before, learner.network.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
