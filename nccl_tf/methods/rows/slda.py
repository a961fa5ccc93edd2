"""The row of SLDA, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method
from nccl_tf.methods.rows.frozen import COUNTS_ONCE, WITHOUT_STEPS

NUMBERS = (
    Hyperparameter(
        "shrinkage",
        "float",
        1e-4,
        symbol="ε",
        unit="1",
        gt=0.0,
        le=1.0,
        help="share of the unit matrix in the covariance; 1 is the nearest class mean",
    ),
)

SLDA = Method(
    name="slda",
    place=340,
    title="SLDA",
    learner="nccl_tf.methods.slda:SLDA",
    hyperparameters=NUMBERS,
    source=(
        "Hayes and Kanan, Lifelong machine learning with deep streaming linear "
        "discriminant analysis, CVPR Workshops 2020; for pretrained networks, whose "
        "weights stay as they are"
    ),
    options=COUNTS_ONCE,
    refuses=WITHOUT_STEPS,
)
