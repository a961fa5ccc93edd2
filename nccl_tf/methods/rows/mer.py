"""The row of MER, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import LearningRates, Method

NUMBERS = (
    Hyperparameter(
        "meta_rate",
        "float",
        0.1,
        symbol="γ",
        unit="1",
        gt=0.0,
        le=1.0,
        help="share of the way to the weights after all inner steps that is gone",
    ),
    Hyperparameter(
        "stream_multiplier",
        "float",
        None,
        symbol="s",
        unit="1",
        gt=0.0,
        default_doc="10, or 5 for a network with convolutions",
        help="step size on the stream batch over that on a memory example",
    ),
    Hyperparameter(
        "mer_batch_norm",
        "choice",
        None,
        on_images="example",
        choices=("example", "moving"),
        default_doc="example",
        help=(
            "statistics that batch norm takes where single examples pass: of the example itself, "
            "as the paper's code base, or the moving averages"
        ),
    ),
)

MER = Method(
    name="mer",
    place=130,
    title="MER",
    passes="every example by itself",
    learner="nccl_tf.methods.mer:MER",
    memory="reservoir",
    learning_rates=LearningRates(mnist=0.03, cifar=0.03, mini_imagenet=0.03),
    hyperparameters=NUMBERS,
    source=(
        "Riemer et al., Learning to learn without forgetting by maximizing transfer and "
        "minimizing interference, ICLR 2019; as the code of Chaudhry et al., "
        "Continual learning in low-rank orthogonal subspaces, NeurIPS 2020"
    ),
    refuses={"batch_norm": "passes single examples, for which it has mer_batch_norm"},
    rows_passed=lambda work: work.stream + work.memory,
)
