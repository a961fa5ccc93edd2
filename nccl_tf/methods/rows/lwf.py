"""The row of LwF, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method

NUMBERS = (
    Hyperparameter(
        "lwf_weight",
        "float",
        1.0,
        ge=0.0,
        symbol="λ",
        help="weight of the distance to the old outputs for old classes",
    ),
    Hyperparameter(
        "lwf_temperature",
        "float",
        2.0,
        gt=0.0,
        symbol="T",
        help="temperature of both softmaxes; a high one compares small outputs too",
    ),
)

LWF = Method(
    name="lwf",
    place=250,
    title="LwF",
    passes="the batch by the network before the task",
    learner="nccl_tf.methods.lwf:LwF",
    hyperparameters=NUMBERS,
    source="Li and Hoiem, Learning without forgetting, TPAMI 40, 2018",
    rows_passed=lambda work: 2 * work.stream,
)
