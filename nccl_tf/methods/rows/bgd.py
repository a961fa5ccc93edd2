"""The row of BGD, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import LearningRates, Method, Work

NUMBERS = (
    Hyperparameter(
        "bgd_samples",
        "int",
        10,
        symbol="S",
        unit="samples",
        ge=1,
        help="weights drawn in a step",
    ),
    Hyperparameter(
        "bgd_sigma",
        "float",
        0.06,
        symbol="σ₀",
        unit="weight",
        gt=0.0,
        help="standard deviation of every weight before training",
    ),
)


def _rows_passed(work: Work) -> int:
    return work.stream * (1 + work.numbers["bgd_samples"])


BGD = Method(
    name="bgd",
    place=70,
    title="BGD",
    passes="the batch at ten draws of the weights",
    learner="nccl_tf.methods.bgd:BGD",
    learning_rates=LearningRates(mnist=1.0, cifar=1.0, mini_imagenet=1.0),
    hyperparameters=NUMBERS,
    source=("Zeno et al., Task agnostic continual learning using online variational Bayes, 2018"),
    rows_passed=_rows_passed,
)
