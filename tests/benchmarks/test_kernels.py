"""How many operations a step is: on a GPU each of them is a launch."""

import pytest

from benchmarks.trace_step import count_kernels

MOST = {"er_ring": 200, "nccl_ring": 290, "agem": 275, "derpp": 300}


@pytest.mark.seconds(16)  # it traces calls of one step and of eleven
@pytest.mark.parametrize(
    "method",
    [name if name == "er_ring" else pytest.param(name, marks=pytest.mark.nightly) for name in MOST],
)
def test_a_step_has_no_more_kernels_than_it_had(method, optimized_graphs):
    found = count_kernels(method)
    assert sum(found.values()) <= MOST[method]
    assert any(name.endswith("MatMul") for name in found)
