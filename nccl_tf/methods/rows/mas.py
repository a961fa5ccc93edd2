"""The row of MAS, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import IMPORTANCE_EXAMPLES, Hyperparameter
from nccl_tf.methods.row import Method, Work

NUMBERS = (
    Hyperparameter(
        "mas_lambda",
        "float",
        0.1,
        ge=0.0,
        symbol="λ",
        help="weight of the penalty; with an α λ Ω above 1 it diverges",
    ),
)


def rows_of_samples(work: Work) -> int:
    """Of a sample of each task too, when it ends."""
    most = work.numbers["importance_examples"]
    return work.stream + sum(min(most, examples) for examples in work.task_examples)


MAS = Method(
    name="mas",
    place=280,
    title="MAS",
    passes="examples one by one, at a task's end",
    learner="nccl_tf.methods.mas:MAS",
    hyperparameters=(*NUMBERS, IMPORTANCE_EXAMPLES),
    source=("Aljundi et al., Memory aware synapses: learning what (not) to forget, ECCV 2018"),
    rows_passed=rows_of_samples,
)
