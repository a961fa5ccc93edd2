"""The row of ER-ACE, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import BATCH_NORM
from nccl_tf.methods.row import Method, Unsupported
from nccl_tf.methods.rows.er import SUM_OF_MEANS

ER_ACE = Method(
    name="er_ace",
    place=220,
    title="ER-ACE",
    learner="nccl_tf.methods.er_ace:ERACE",
    memory="reservoir",
    hyperparameters=(BATCH_NORM, SUM_OF_MEANS),
    unsupported=(
        Unsupported(
            "a head is the mask that it puts on the stream; what is left is er_reservoir "
            "with --er_weighting=sum_of_means",
            head="multi",
        ),
    ),
    options={"stream_mask": "present"},
    on_replicas=True,
    source=(
        "Caccia et al., New insights on reducing abrupt representation change in online "
        "continual learning, ICLR 2022"
    ),
)
