"""Many tasks take no more memory and no more graphs than a few."""

import subprocess
import sys

import pytest

CODE = """
import gc, pathlib, sys
import psutil
from nccl_tf.session.evaluation import Evaluation
from nccl_tf.experiment.run.signals import InterruptRequest
from nccl_tf.records.options import RunOptions
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.seed import run_seed

method, folder = sys.argv[1:]
given = {
    "method": method, "dataset": "permuted_digits", "num_tasks": 40, "tuning_tasks": 0,
    "hidden": (32,), "examples_per_task": 300, "memory_per_class": 1,
}
after = Evaluation.evaluate_after

def after_and_measure(self, i, between):
    after(self, i, between)
    if i + 1 in (10, 40):
        gc.collect()
        evaluations = self._learner._base.count.experimental_get_tracing_count()
        resident = psutil.Process().memory_info().rss
        print("measured", resident, self._learner.execution.traces, evaluations)

Evaluation.evaluate_after = after_and_measure
run_seed(
    resolve(given), RunOptions(checkpoint_every=1e9), 0, pathlib.Path(folder), InterruptRequest()
)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["nccl_ring", "er_reservoir"])
def test_memory_and_graphs_do_not_grow_over_forty_tasks(method, tmp_path):
    printed = subprocess.run(
        [sys.executable, "-c", CODE, method, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows = [line.split()[1:] for line in printed.splitlines() if line.startswith("measured")]
    (early, *graphs), (late, *later_graphs) = ([int(word) for word in row] for row in rows)
    assert late < 1.02 * early
    assert graphs == later_graphs and graphs[0] == 1
