"""What one step of the default method enters."""

import pytest

from benchmarks.trace_step import trace


@pytest.mark.parametrize("gradients", ["auto", "two_tapes"])
def test_keras_runs_train_step_and_few_files_are_entered(gradients):
    entered = trace("nccl_ring", gradients=gradients)
    assert ("learner/learner.py", "Learner.train_step") in entered.functions
    by_rows = ("learner/row_gradients.py", "RowGradients.pair") in entered.functions
    assert by_rows == (gradients == "auto")
    assert len(entered.files) <= 20
