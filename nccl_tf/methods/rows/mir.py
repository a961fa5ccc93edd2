"""The row of MIR, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import BATCH_NORM, Hyperparameter
from nccl_tf.methods.row import LearningRates, Method, Work
from nccl_tf.methods.rows.er import SUM_OF_MEANS

NUMBERS = (
    Hyperparameter(
        "candidates",
        "int",
        50,
        symbol="C",
        unit="examples",
        ge=1,
        help="memory examples drawn; those that the step would harm most are replayed",
    ),
)
RATES = LearningRates(mnist=0.05)
WITH_REPLAY = (*NUMBERS, BATCH_NORM, SUM_OF_MEANS)


def rows_passed(work: Work) -> int:
    """Of a virtual step, of the candidates at two weights, and of those that are replayed."""
    ahead = work.replays * work.batch_size
    candidates = 2 * work.replays * work.numbers["candidates"]
    return work.stream + ahead + candidates + work.memory


MIR = Method(
    name="mir",
    place=210,
    title="MIR",
    passes="candidates of the memory at two weights",
    learner="nccl_tf.methods.mir:MIR",
    memory="past_reservoir",
    learning_rates=RATES,
    hyperparameters=WITH_REPLAY,
    source=(
        "Aljundi et al., Online continual learning with maximally interfered retrieval, "
        "NeurIPS 2019"
    ),
    rows_passed=rows_passed,
)
