"""Steps in PyTorch: what a CUDA graph captures takes the steps of the eager form."""

import copy

import numpy as np
import pytest

from benchmarks.side_by_side import examples, full_ring, readable

torch = pytest.importorskip("torch", reason="the PyTorch sides of benchmarks need PyTorch")
from benchmarks import peers  # noqa: E402

SHAPE, HEADS, BATCH, STEPS = (4, 4, 1), [[0, 1], [2, 3], [4, 5]], 4, 5


@pytest.fixture(scope="module")
def task():
    memory = readable(full_ring(HEADS, SHAPE, 8))
    return peers.Task(examples(STEPS, SHAPE, HEADS[-1], BATCH), memory, HEADS, BATCH)


@pytest.mark.parametrize("rate", [0.9, 1e-4])  # beta_H of NCCL by its formula, and at its cap
@pytest.mark.parametrize("rule", peers.RULES)
def test_a_captured_step_is_the_eager_one(rule, rate, task):
    network = peers.mlp(16, 6, (8,))
    sides = [
        kind(copy.deepcopy(network), task, rate, rule)
        for kind in (peers.TorchStep, peers.GraphStep)
    ]
    draws = np.random.default_rng(0)
    for number in range(STEPS):
        drawn = [torch.from_numpy(draws.choice(32, 20, replace=False)) for _ in range(2)]
        for side in sides:
            left = iter(drawn)
            side.draw = lambda count, left=left: next(left)[:count]
            side.step(number)
    eager, captured = sides
    pairs = [
        *zip(eager.network.parameters(), captured.network.parameters(), strict=True),
        (eager.images, captured.images),
        (eager.logits, captured.logits),
    ]
    for mine, other in pairs:
        mine, other = mine.detach().numpy(), other.detach().numpy()
        np.testing.assert_allclose(other, mine, rtol=1e-5, atol=1e-6)
    assert bool(eager.logits.any()) == (rule == "derpp")


def test_a_draw_on_the_device_is_of_distinct_rows(task):
    side = peers.GraphStep(peers.mlp(16, 6, (8,)), task, 0.1, "er_ring")
    assert sorted(side.draw(32).tolist()) == list(range(32))
