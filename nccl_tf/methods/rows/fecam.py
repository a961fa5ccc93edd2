"""The row of FeCAM, without TensorFlow."""

from nccl_tf.arguments.choices import COVARIANCES
from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method
from nccl_tf.methods.rows.frozen import COUNTS_ONCE, WITHOUT_STEPS

NUMBERS = (
    Hyperparameter(
        "fecam_shrinkage",
        "float",
        1.0,
        symbol="γ₁",
        unit="1",
        ge=0.0,
        help="share of its mean variance that is added to the variances of a covariance",
    ),
    Hyperparameter(
        "fecam_off_diagonal",
        "float",
        0.0,
        symbol="γ₂",
        unit="1",
        ge=0.0,
        help="share of the mean of its other entries that is added to these",
    ),
    Hyperparameter(
        "fecam_power",
        "float",
        1.0,
        symbol="λ",
        unit="1",
        gt=0.0,
        le=1.0,
        help="power that features are raised to; 0.5 for those that are never negative",
    ),
    Hyperparameter(
        "fecam_covariance",
        "choice",
        "class",
        choices=COVARIANCES,
        help="one covariance for each class, or one shared by all",
    ),
)

FECAM = Method(
    name="fecam",
    place=355,
    title="FeCAM",
    learner="nccl_tf.methods.fecam:FeCAM",
    hyperparameters=NUMBERS,
    source=(
        "Goswami et al., FeCAM: exploiting the heterogeneity of class distributions in "
        "exemplar-free continual learning, NeurIPS 2023; for pretrained networks, whose "
        "weights stay as they are"
    ),
    options=COUNTS_ONCE,
    refuses=WITHOUT_STEPS,
)
