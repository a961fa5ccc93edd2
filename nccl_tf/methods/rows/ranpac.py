"""The row of RanPAC, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method
from nccl_tf.methods.rows.frozen import COUNTS_ONCE, WITHOUT_STEPS

NUMBERS = (
    Hyperparameter(
        "projected_features",
        "int",
        2000,
        symbol="M",
        unit="features",
        ge=1,
        help="random features; the paper has 10,000",
    ),
    Hyperparameter(
        "ridge",
        "float",
        None,
        symbol="λ",
        gt=0.0,
        default_doc="chosen at every task's end",
        help="added to the diagonal of the Gram matrix",
    ),
)

RANPAC = Method(
    name="ranpac",
    place=360,
    title="RanPAC",
    learner="nccl_tf.methods.ranpac:RanPAC",
    # A step writes the whole Gram matrix, and the results do not depend on its batch.
    batch_sizes=(100, 100),
    hyperparameters=NUMBERS,
    source=(
        "McDonnell et al., RanPAC: random projections and pre-trained models for continual "
        "learning, NeurIPS 2023; for pretrained networks, whose weights stay as they are"
    ),
    options=COUNTS_ONCE,
    refuses=WITHOUT_STEPS,
    trial={"projected_features": 40},
)
