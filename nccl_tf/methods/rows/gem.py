"""The row of GEM, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import BATCH_NORM, Hyperparameter
from nccl_tf.methods.row import Method, Work

NUMBERS = (
    Hyperparameter(
        "gem_margin",
        "float",
        0.5,
        symbol="γ",
        unit="1",
        ge=0.0,
        help="least weight of each past task's gradient in a projected step",
    ),
    Hyperparameter(
        "gem_ridge",
        "float",
        0.001,
        unit="squared gradient norm",
        ge=0.0,
        help="added to the diagonal of the past gradients' inner products",
    ),
    replace(BATCH_NORM, choices=("separate", "frozen")),
)
WHOLE_TASKS = "takes gradients on whole tasks of its memory; dark replay is of drawn batches"


def _rows_passed(work: Work) -> int:
    past = sum(steps * task for task, steps in enumerate(work.task_steps))
    return work.stream + past * work.slots_of_a_task()


GEM = Method(
    name="gem",
    place=60,
    title="GEM",
    passes="the whole memory, task by task",
    learner="nccl_tf.methods.gem:GEM",
    memory="ring",
    memory_batch=0,
    hyperparameters=NUMBERS,
    source=("Lopez-Paz and Ranzato, Gradient episodic memory for continual learning, NeurIPS 2017"),
    refuses={"dark": WHOLE_TASKS},
    rows_passed=_rows_passed,
)
