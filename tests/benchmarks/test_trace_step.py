"""What one step of the default method enters."""

from benchmarks.trace_step import trace


def test_keras_runs_train_step_and_few_files_are_entered():
    entered = trace("nccl_ring", gradients="auto")
    assert ("learner/core.py", "Core.train_step") in entered.functions
    assert ("learner/row_gradients.py", "RowGradients.pair") in entered.functions
    # One checks the names of attributes that are set, one tells whether XLA compiles the step, one
    # refuses ragged rows of a generator, one notes the graph for when the learner is deleted.
    assert len(entered.files) <= 25
