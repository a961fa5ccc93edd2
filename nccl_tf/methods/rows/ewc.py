"""The row of EWC, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method

EWC_LAMBDA = Hyperparameter(
    "ewc_lambda",
    "float",
    10.0,
    symbol="λ",
    unit="1",
    ge=0.0,
    help="weight of the penalty; with an α λ above 1 its steps can diverge",
)
NUMBERS = (
    EWC_LAMBDA,
    Hyperparameter(
        "ewc_window",
        "int",
        None,
        symbol="u",
        unit="steps",
        ge=1,
        default_doc="10, or 50 for a network with convolutions",
        help="steps in a window of the running Fisher information",
    ),
)

EWC = Method(
    name="ewc",
    place=50,
    title="EWC",
    learner="nccl_tf.methods.ewc:EWC",
    hyperparameters=NUMBERS,
    source=(
        "Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, "
        "PNAS 114, 2017; as the code of Chaudhry et al., Continual learning in "
        "low-rank orthogonal subspaces, NeurIPS 2020"
    ),
)
