"""The row of GEC, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method
from nccl_tf.methods.rows.agem import TWO_GRADIENTS

NUMBERS = (
    Hyperparameter(
        "gec_alpha",
        "float",
        0.5,
        symbol="a",
        unit="1/step size",
        gt=0.0,
        help="strength of the barrier: how fast a memory loss above the tolerance is lowered",
    ),
    Hyperparameter(
        "gec_tolerance",
        "float",
        None,
        symbol="ε",
        unit="unit of loss",
        ge=0.0,
        default_doc="5 % above the mean training loss of the ended tasks",
        help="the memory loss that is tolerated",
    ),
)

GEC = Method(
    name="gec",
    place=310,
    title="GEC",
    learner="nccl_tf.methods.gec:GEC",
    memory="reservoir",
    hyperparameters=(*NUMBERS, *TWO_GRADIENTS),
    on_replicas=True,
    source=(
        "Lai et al., Gradient-guided epsilon constraint method for online continual "
        "learning, NeurIPS 2025: the single constraint of its section 5.1"
    ),
)
