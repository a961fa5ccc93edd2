"""What one step of the default method enters."""

from benchmarks.trace_step import trace


def test_keras_runs_train_step_and_few_files_are_entered():
    entered = trace("nccl_ring", gradients="auto")
    assert ("learner/core.py", "Core.train_step") in entered.functions
    assert ("learner/row_gradients.py", "RowGradients.pair") in entered.functions
    # Ten of them hold what the learner does: how steps run, progress, storage, options, class
    # weights, devices, heads, losses, logs, and the graphs for when it is deleted.
    assert len(entered.files) <= 29
