"""The row of training on all examples so far, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import Method

NUMBERS = (
    Hyperparameter(
        "restart",
        "bool",
        False,
        help="train the first weights anew at every task, in place of those of the task before",
    ),
)

CUMULATIVE = Method(
    name="cumulative",
    place=15,
    title="Cumulative",
    learner="nccl_tf.methods.cumulative:Cumulative",
    hyperparameters=NUMBERS,
    joins=True,
    on_replicas=True,
    passes="all examples of the tasks before",
    # Steps of a task are those over all examples so far.
    rows_passed=lambda work: work.stream,
    refuses={"alignment": "trains its head on all classes so far"},
    trial={"joined": True},
    source="The baseline of every table that keeps all examples, without a paper of its own",
)
