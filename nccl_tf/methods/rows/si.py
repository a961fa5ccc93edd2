"""The row of SI, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method

NUMBERS = (
    Hyperparameter(
        "si_c",
        "float",
        0.1,
        ge=0.0,
        symbol="c",
        help="weight of the penalty; with an α c Ω above 1 steps can diverge",
    ),
    Hyperparameter(
        "si_xi",
        "float",
        0.1,
        gt=0.0,
        symbol="ξ",
        unit="squared weight",
        help="added to a weight's squared distance; keeps its importance finite",
    ),
)

SI = Method(
    name="si",
    place=260,
    title="SI",
    learner="nccl_tf.methods.si:SI",
    hyperparameters=NUMBERS,
    source=(
        "Zenke et al., Continual learning through synaptic intelligence, ICML 2017; as "
        "the authors' code"
    ),
)
