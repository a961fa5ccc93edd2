"""The row of MC-SGD, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method, Work
from nccl_tf.methods.rows.stable import BATCHES, RATES
from nccl_tf.methods.rows.stable import NUMBERS as STABLE

NUMBERS = (
    Hyperparameter(
        "line_points",
        "int",
        11,
        symbol="|S|",
        unit="points",
        ge=1,
        help="points of each line on which the merged weights keep the loss low; 1 is its end",
    ),
    Hyperparameter(
        "line_start",
        "float",
        0.5,
        symbol="a",
        unit="1",
        ge=0.0,
        le=1.0,
        help=(
            "where the descent to the merged weights begins, from the weights before the task (0)"
            " to those after it (1)"
        ),
    ),
    Hyperparameter(
        "line_learning_rate",
        "float",
        0.02,
        unit="step size",
        gt=0.0,
        help="step size of the descent to the merged weights",
    ),
    Hyperparameter(
        "line_steps",
        "int",
        None,
        unit="steps",
        ge=1,
        default_doc="one pass over the stored examples, 50 at least",
        help="steps of the descent to the merged weights",
    ),
    Hyperparameter(
        "line_examples",
        "int",
        200,
        unit="examples",
        ge=0,
        help=(
            "size of the uniform sample of the task at whose end weights are merged; 0 for the "
            "examples of it that the memory holds"
        ),
    ),
)


def _rows_passed(work: Work) -> int:
    size, slots = work.memory_batch_size, work.slots_of_a_task()
    present = size if work.numbers["line_examples"] else slots
    total = work.stream
    # Points of the line but its start, which adds nothing, and a pass for batch normalisation.
    for task in range(1, len(work.task_steps)):
        steps = work.numbers["line_steps"] or max(-(-task * slots // size), 50)
        total += steps * max(work.numbers["line_points"], 2) * (size + present)
    return total


MC_SGD = Method(
    name="mc_sgd",
    place=120,
    title="MC-SGD",
    passes="the memory along two lines, at a task's end",
    learner="nccl_tf.methods.mc_sgd:MCSGD",
    memory="ring",
    learning_rates=RATES,
    batch_sizes=BATCHES,
    hyperparameters=(*STABLE, *NUMBERS),
    source=(
        "Mirzadeh et al., Linear mode connectivity in multitask and continual learning, ICLR 2021"
    ),
    refuses={
        "average_weights": "merges its weights at every task's end, where no step leads",
        "dark": "reads its memory when a task has ended, to merge weights",
        "batch_norm": "learns the stream alone until a task has ended",
    },
    rows_passed=_rows_passed,
)
