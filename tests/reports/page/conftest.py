"""Runs for the page, and the browser that looks at it."""

import numpy as np
import pytest

from nccl_tf.reports.records import RecordedRun
from tests.browser import browser, resize  # noqa: F401
from tests.commands.paper.test_parity import find_cell
from tests.commands.paper.test_parity import record as record_of_cell
from tests.experiment import sample


@pytest.fixture(scope="session")
def records():
    """Two seeds of NCCL, two rates of ER, a joint method, a trial of a sweep, and a cell of T9."""
    matrices = {
        "nccl_ring": [[0.9, 0.1, np.nan], [0.8, 0.9, 0.1], [0.7, 0.8, 0.9]],
        "er_ring": [[0.6, 0.2, np.nan], [0.5, 0.6, 0.2], [0.4, 0.5, 0.6]],
        "multi_task": [[np.nan] * 3, [np.nan] * 3, [0.95] * 3],
    }
    made = [sample.record(matrices["nccl_ring"], seed, method="nccl_ring") for seed in (1, 0)]
    made += [
        sample.record(matrices["er_ring"], 0, method="er_ring", learning_rate=rate)
        for rate in (0.1, 0.01)
    ]
    made.append(sample.record(matrices["multi_task"], 0, method="multi_task"))
    made.append(sample.record([[0.123]], 0, method="nccl_ring", tasks="tuning"))
    cell = find_cell("T9", "er_ring")
    return [*made, *(record_of_cell(cell, seed, 0.87) for seed in range(3))]


@pytest.fixture(scope="session")
def runs(records):
    """The same, without folders."""
    return [RecordedRun(record, None) for record in records]
