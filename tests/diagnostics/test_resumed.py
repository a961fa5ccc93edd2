"""Diagnostics of runs: the same after a stop, and none of the training's business."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.seed import run_seed
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.records.options import RunOptions
from tests.experiment.run.test_resume import GIVEN, StopAfter


def run(folder, method, looks=None, diagnostics="subset", **more):
    folder.mkdir(exist_ok=True)
    options = RunOptions(
        record_every=7, steps_per_execution=3, checkpoint_every=1e9, diagnostics=diagnostics, **more
    )
    settings = resolve({**GIVEN, "method": method})
    return run_seed(settings, options, 3, folder, StopAfter(looks)).as_json()


@pytest.mark.nightly  # tests/experiment/run/test_resume.py stops a run with its diagnostics
@pytest.mark.parametrize("method", ["finetune", "nccl_ring"])
def test_a_stopped_run_measures_and_trains_the_same(tmp_path, method):
    """That nothing else changes is shown by test_callback.py."""
    whole = run(tmp_path / "whole", method)
    with pytest.raises(Interrupted):
        run(tmp_path / "stopped", method, 9)
    stopped = run(tmp_path / "stopped", method)
    assert whole["state_sha256"] == stopped["state_sha256"]
    one, other = whole["diagnostics"], stopped["diagnostics"]
    assert one.pop("seconds") > 0 and other.pop("seconds") > 0
    assert one == other
    assert len(one["tasks"]) == 3 and one["tasks"][2]["steps"] == sum(whole["task_steps"][1:])
    assert np.isfinite(one["tasks"][2]["gamma_raw"])


def test_going_on_with_other_diagnostics_is_refused(tmp_path):
    with pytest.raises(Interrupted):
        run(tmp_path, "finetune", 3)
    for other in ("off", "full"):
        with pytest.raises(UserError, match="of another --diagnostics"):
            run(tmp_path, "finetune", diagnostics=other)


def test_a_run_of_all_tasks_at_once_has_one_end(tmp_path):
    record = run(tmp_path, "multi_task")
    (row,) = record["diagnostics"]["tasks"]
    assert row["draws"] is None and row["steps"] == 0
    assert np.isfinite(row["first_task"]["gradient_norm"])
