"""The row of iCaRL, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import BATCH_NORM, Hyperparameter
from nccl_tf.methods.row import Method, Unsupported

NUMBERS = (
    Hyperparameter(
        "herding_pool",
        "int",
        2500,
        unit="examples",
        ge=1,
        help=(
            "size of the uniform sample of the open task from which exemplars are chosen at its end"
        ),
    ),
)

ICARL = Method(
    name="icarl",
    place=180,
    title="iCaRL",
    passes="the batch by the network before the task",
    learner="nccl_tf.methods.icarl:ICaRL",
    memory="exemplars",
    hyperparameters=(*NUMBERS, replace(BATCH_NORM, default="joint")),
    unsupported=(
        Unsupported(
            "it knows a task by its new classes, and every task of this stream has the same ones",
            kind="permuted",
        ),
    ),
    source=("Rebuffi et al., iCaRL: incremental classifier and representation learning, CVPR 2017"),
    refuses={
        "average_weights": "predicts by mean features of exemplars under the plain weights",
        "stream_mask": "takes every class for itself, without a softmax",
        "alignment": "takes every class for itself, without a softmax",
        "dark": "distils the outputs of the network before the task into every loss",
    },
)
