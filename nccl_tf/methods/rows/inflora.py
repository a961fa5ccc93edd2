"""The row of InfLoRA, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method, Unsupported

RANK = Hyperparameter(
    "rank",
    "int",
    10,
    symbol="r",
    unit="directions",
    ge=1,
    help="of the adapters that layers get where the network has none",
)
EPSILON = Hyperparameter(
    "epsilon",
    "float",
    0.95,
    symbol="ε",
    unit="1",
    gt=0.0,
    le=1.0,
    help="share of a layer's inputs that the directions of the first task explain",
)
NUMBERS = (RANK, EPSILON)

INFLORA = Method(
    name="inflora",
    place=370,
    title="InfLoRA",
    learner="nccl_tf.methods.inflora:InfLoRA",
    takes_num_tasks=True,
    hyperparameters=NUMBERS,
    unsupported=(
        Unsupported("it masks the classes of other tasks, as a head does already", head="multi"),
    ),
    options={"stream_mask": "task"},
    refuses={"average_weights": "sets and merges its adapters between tasks, where no step leads"},
    networks=("mlp",),
    passes="each task once before its training and once after it",
    rows_passed=lambda work: work.stream + 2 * sum(work.task_examples),
    trial={"rank": 2, "num_tasks": 3},
    source=(
        "Liang and Li, InfLoRA: interference-free low-rank adaptation for continual learning, "
        "CVPR 2024"
    ),
)
