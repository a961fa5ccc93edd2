"""The rows of DER and DER++, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import BATCH_NORM, Hyperparameter
from nccl_tf.methods.row import Method
from nccl_tf.methods.rows.er import SUM_OF_MEANS

NUMBERS = (
    Hyperparameter(
        "der_alpha",
        "float",
        0.5,
        ge=0.0,
        symbol="α",
        help="weight of the squared difference to the stored logits",
    ),
    Hyperparameter(
        "der_beta",
        "float",
        0.5,
        ge=0.0,
        symbol="β",
        help="weight of the cross-entropy on a second memory batch",
    ),
)
_SOURCE = "Buzzega et al., Dark experience for general continual learning, NeurIPS 2020"

DER = Method(
    name="der",
    place=230,
    title="DER",
    learner="nccl_tf.methods.der:DER",
    memory="reservoir",
    hyperparameters=(BATCH_NORM, SUM_OF_MEANS),
    options={"dark": 0.5, "replay_labels": 0.0},
    on_replicas=True,
    source=_SOURCE,
)

DERPP = Method(
    name="derpp",
    place=240,
    title="DER++",
    passes="a second memory batch",
    learner="nccl_tf.methods.der:DERpp",
    memory="reservoir",
    hyperparameters=(*NUMBERS, BATCH_NORM),
    source=_SOURCE,
    refuses={"dark": "has der_alpha and der_beta, with a draw of its own for each"},
    rows_passed=lambda work: work.stream + 2 * work.memory,
)
