"""The row of NCM, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method
from nccl_tf.methods.rows.frozen import COUNTS_ONCE, WITHOUT_STEPS

NUMBERS = (
    Hyperparameter(
        "ncm_distance",
        "choice",
        "euclidean",
        choices=("euclidean", "cosine"),
        help="between the features of an example and the mean of a class",
    ),
)

NCM = Method(
    name="ncm",
    place=350,
    title="NCM",
    learner="nccl_tf.methods.ncm:NCM",
    hyperparameters=NUMBERS,
    source=(
        "Mensink et al., Distance-based image classification: generalizing to new classes "
        "at near-zero cost, TPAMI 35, 2013; for pretrained networks, whose weights stay as "
        "they are"
    ),
    options=COUNTS_ONCE,
    refuses=WITHOUT_STEPS,
)
