"""The row of CN-DPM, without TensorFlow."""

from nccl_tf.arguments.choices import STORES
from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import LearningRates, Method

NUMBERS = (
    Hyperparameter(
        "log_alpha",
        "float",
        None,
        symbol="log α",
        unit="nat",
        default_doc="-400 with mlp_experts, -450 with conv_experts",
        help="logarithm of the weight of a new expert; the lower it is, the fewer there are",
    ),
    Hyperparameter(
        "vae_steps",
        "int",
        None,
        unit="steps",
        ge=0,
        default_doc=(
            "8000 with mlp_experts, 4000 with conv_experts, but no more than 16 for each slot of "
            "the short-term memory"
        ),
        help="training steps of a new expert's autoencoder",
    ),
    Hyperparameter(
        "classifier_steps",
        "int",
        None,
        unit="steps",
        ge=0,
        default_doc="2000 with mlp_experts, 1000 with conv_experts",
        help="training steps of a new expert's classifier",
    ),
    Hyperparameter(
        "sleep_batch_size",
        "int",
        50,
        unit="examples",
        ge=1,
        help="examples of the short-term memory in a training step of a new expert",
    ),
    Hyperparameter(
        "vae_learning_rate",
        "float",
        None,
        unit="step size",
        gt=0.0,
        default_doc="4e-4 with mlp_experts, 2e-4 with conv_experts",
        help="step size of Adam for the autoencoders; --learning_rate is the classifiers'",
    ),
    Hyperparameter(
        "classifier_chill",
        "float",
        0.01,
        unit="1",
        gt=0.0,
        help=("temperature of the classifiers where they tell which expert an example belongs to"),
    ),
)
MAX_EXPERTS = Hyperparameter(
    "max_experts",
    "int",
    20,
    unit="experts",
    ge=1,
    part="network",
    help="greatest number of experts; when it is reached, no example counts as new",
)

CN_DPM = Method(
    name="cn_dpm",
    place=150,
    title="CN-DPM",
    passes="its short-term memory, by experts with density models",
    learner="nccl_tf.methods.cn_dpm.method:CNDPM",
    memory="short_term",
    memory_batch=0,
    networks=("mlp_experts", "conv_experts"),
    learning_rates=LearningRates(mnist=1e-4, cifar=5e-3, mini_imagenet=5e-3),
    hyperparameters=(*NUMBERS, MAX_EXPERTS),
    source=(
        "Lee et al., A neural Dirichlet process mixture model for task-free continual "
        "learning, ICLR 2020"
    ),
    refuses={
        "average_weights": "builds its experts one after the other, each trained by itself",
        "augment": "has networks of its own, which also model the density of images",
        "optimizer": "trains its experts by Adam, and takes the rate alone",
        "schedule": "trains its experts by a decay of its own",
        "stream_mask": "trains its experts one by one, each with classes of its own",
        "rates": "has networks of its own, each with its optimizer",
        "alignment": "has networks of its own, and no head of all classes",
    },
    # Its memory is no sample: what no expert explains waits there, in whichever pass.
    options={"stores": STORES[1]},
    trial={"vae_steps": 2, "classifier_steps": 2, "vae_learning_rate": 0.01},
)
