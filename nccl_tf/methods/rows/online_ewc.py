"""The row of Online EWC, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import IMPORTANCE_EXAMPLES, Hyperparameter
from nccl_tf.methods.row import Method
from nccl_tf.methods.rows.ewc import EWC_LAMBDA
from nccl_tf.methods.rows.mas import rows_of_samples

NUMBERS = (
    replace(
        EWC_LAMBDA,
        default=0.7,
        help="weight of the penalty; with an α λ F above 1 it diverges",
    ),
    Hyperparameter(
        "ewc_gamma",
        "float",
        1.0,
        ge=0.0,
        le=1.0,
        symbol="γ",
        help="share of the Fisher information that is left when another task ends",
    ),
)

ONLINE_EWC = Method(
    name="online_ewc",
    place=270,
    title="Online EWC",
    passes="examples one by one, at a task's end",
    learner="nccl_tf.methods.online_ewc:OnlineEWC",
    hyperparameters=(*NUMBERS, IMPORTANCE_EXAMPLES),
    source=(
        "Schwarz et al., Progress & Compress: a scalable framework for continual learning, "
        "ICML 2018; as the code of Buzzega et al., Dark experience for general continual "
        "learning, NeurIPS 2020"
    ),
    rows_passed=rows_of_samples,
)
