"""The rows of NCCL, without TensorFlow."""

from nccl_tf.arguments.choices import BATCH_NORM_ORDERS, GRAD_SCOPES
from nccl_tf.arguments.hyperparameters import BATCH_NORM, GRADIENTS, SMOOTHNESS, Hyperparameter
from nccl_tf.methods.row import LearningRates, Method

NUMBERS = (
    Hyperparameter(
        "delta",
        "float",
        0.001,
        symbol="δ",
        unit="1",
        gt=0.0,
        lt=1.0,
        help="keeps β_H below α in transfer: β_H ≤ α (1 - δ)",
    ),
    Hyperparameter(
        "beta_max",
        "float",
        None,
        symbol="β_max",
        unit="step size",
        gt=0.0,
        help="clips β_H in transfer in place of α (1 - δ)",
    ),
    Hyperparameter(
        "grad_scope",
        "choice",
        "all",
        choices=GRAD_SCOPES,
        help=(
            "what Λ and both norms are taken over: all variables together, or layer: each kernel, "
            "bias, scale or offset by itself, with step sizes of its own"
        ),
    ),
    Hyperparameter(
        "batch_norm_order",
        "choice",
        "memory_first",
        choices=BATCH_NORM_ORDERS,
        help=(
            "which batch passes batch norm first where each has its own statistics; the other one "
            "moves the moving averages last"
        ),
    ),
)
_DELTA, _BETA_MAX, _GRAD_SCOPE, _BATCH_NORM_ORDER = NUMBERS
_ALL = (
    SMOOTHNESS, GRADIENTS, _DELTA, _BETA_MAX, _GRAD_SCOPE, BATCH_NORM, _BATCH_NORM_ORDER,
)  # fmt: skip
_SOURCE = "Han et al., On the convergence of continual learning with adaptive methods, UAI 2023"

NCCL_RING = Method(
    name="nccl_ring",
    place=910,
    title="NCCL + Ring",
    learner="nccl_tf.methods.nccl:NCCL",
    memory="ring",
    learning_rates=LearningRates(cifar=0.001, mini_imagenet=0.001),
    hyperparameters=_ALL,
    alpha_l_below_one=True,
    on_replicas=True,
    source=_SOURCE,
)

NCCL_RESERVOIR = Method(
    name="nccl_reservoir",
    place=920,
    title="NCCL + Reservoir",
    learner="nccl_tf.methods.nccl:NCCL",
    memory="reservoir",
    learning_rates=LearningRates(cifar=0.003, mini_imagenet=0.003),
    hyperparameters=_ALL,
    alpha_l_below_one=True,
    on_replicas=True,
    source=_SOURCE,
)
