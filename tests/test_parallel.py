"""What the tests take for granted of the plugin that runs them side by side."""

import os

import pytest


@pytest.mark.xdist_group("together")
def test_groups_are_kept_on_one_worker(request):
    """Otherwise each worker builds what the tests of a group share: twice the time."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process")
    assert request.node.nodeid.endswith("@together")


def test_the_tests_of_a_file_are_a_group(request):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process")
    assert request.node.nodeid.endswith("@tests/test_parallel.py")
