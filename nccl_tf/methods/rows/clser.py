"""The row of CLS-ER, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import BATCH_NORM, Hyperparameter
from nccl_tf.methods.row import LearningRates, Method

NUMBERS = (
    Hyperparameter(
        "clser_weight",
        "float",
        0.1,
        symbol="λ",
        unit="1",
        ge=0.0,
        help="weight of the squared difference to the better average's logits",
    ),
    Hyperparameter(
        "stable_decay",
        "float",
        0.999,
        symbol="α_S",
        unit="1",
        ge=0.0,
        lt=1.0,
        help="share that the stable average keeps of itself in an update",
    ),
    Hyperparameter(
        "plastic_decay",
        "float",
        0.999,
        symbol="α_P",
        unit="1",
        ge=0.0,
        lt=1.0,
        help="share that the plastic average keeps of itself in an update",
    ),
    Hyperparameter(
        "stable_rate",
        "float",
        0.7,
        symbol="r_S",
        unit="1",
        gt=0.0,
        le=1.0,
        help="probability that a step updates the stable average",
    ),
    Hyperparameter(
        "plastic_rate",
        "float",
        0.9,
        symbol="r_P",
        unit="1",
        gt=0.0,
        le=1.0,
        help="probability that a step updates the plastic average",
    ),
)

CLSER = Method(
    name="clser",
    place=320,
    title="CLS-ER",
    passes="the memory batch by two averages",
    learner="nccl_tf.methods.clser:CLSER",
    memory="reservoir",
    learning_rates=LearningRates(cifar=0.1, mini_imagenet=0.1),
    hyperparameters=(replace(BATCH_NORM, default="joint"), *NUMBERS),
    source=(
        "Arani, Sarfraz and Zonooz, Learning fast, learning slow: a general continual "
        "learning method based on complementary learning system, ICLR 2022"
    ),
    refuses={"average_weights": "predicts with an average of its own already"},
    rows_passed=lambda work: work.stream + 3 * work.memory,
    trial={"stable_decay": 0.9},
)
