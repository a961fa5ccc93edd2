"""The row of LPR, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import BATCH_NORM, Hyperparameter
from nccl_tf.methods.row import LearningRates, Method, Work

NUMBERS = (
    Hyperparameter(
        "lpr_omega",
        "float",
        1.0,
        symbol="ω₀",
        unit="1",
        ge=0.0,
        help="how much a layer's outputs on memory examples are held; 0 for not",
    ),
    Hyperparameter(
        "lpr_beta",
        "float",
        1.0,
        symbol="β",
        unit="1",
        ge=0.0,
        le=2.0,
        help="power of the places of an image that ω is divided by",
    ),
    Hyperparameter(
        "lpr_every",
        "int",
        10,
        unit="steps",
        ge=1,
        help="steps from one preconditioner to the next",
    ),
    Hyperparameter(
        "lpr_examples",
        "int",
        None,
        symbol="N",
        unit="examples",
        ge=1,
        default_doc="all that the memory holds",
        help="memory examples that a preconditioner is taken from; fewer are faster",
    ),
)


def _rows_passed(work: Work) -> int:
    numbers, count = work.numbers, work.capacity
    if not numbers["lpr_omega"]:
        return work.stream + work.memory
    asked = numbers["lpr_examples"] or count
    together = min(100, asked)
    due = range(numbers["lpr_every"], work.steps, numbers["lpr_every"])
    rows = [min(asked, work.stored_before(step)) for step in due]
    return work.stream + work.memory + sum(-(-row // together) * together for row in rows)


LPR = Method(
    name="lpr",
    place=330,
    title="LPR",
    passes="the whole memory, every tenth step",
    learner="nccl_tf.methods.lpr.method:LPR",
    memory="reservoir",
    learning_rates=LearningRates(cifar=0.1, mini_imagenet=0.1),
    hyperparameters=(replace(BATCH_NORM, default="joint"), *NUMBERS),
    source=(
        "Yoo et al., Layerwise proximal replay: a proximal point method for online "
        "continual learning, ICML 2024"
    ),
    rows_passed=_rows_passed,
)
