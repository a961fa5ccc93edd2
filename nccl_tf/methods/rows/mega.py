"""The rows of MEGA-I and MEGA-II, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method
from nccl_tf.methods.rows.agem import TWO_GRADIENTS

EPSILON = Hyperparameter(
    "mega_epsilon",
    "float",
    1e-5,
    symbol="ε",
    unit="unit of loss",
    gt=0.0,
    help="a mean stream loss at or below it counts as fitted: the step is then replay alone",
)
_SOURCE = "Guo et al., Improved schemes for episodic memory-based lifelong learning, NeurIPS 2020"

MEGA1 = Method(
    name="mega1",
    place=290,
    title="MEGA-I",
    learner="nccl_tf.methods.mega:MEGAI",
    memory="ring",
    hyperparameters=(EPSILON, *TWO_GRADIENTS),
    on_replicas=True,
    source=_SOURCE,
)

MEGA2 = Method(
    name="mega2",
    place=300,
    title="MEGA-II",
    learner="nccl_tf.methods.mega:MEGAII",
    memory="ring",
    hyperparameters=TWO_GRADIENTS,
    on_replicas=True,
    source=_SOURCE,
)
