"""The rows of Stable SGD, alone and with replay, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import RATE_DECAY, RATE_DECAY_STEPS, Hyperparameter
from nccl_tf.methods.row import LearningRates, Method
from nccl_tf.methods.rows.agem import TWO_GRADIENTS
from nccl_tf.methods.rows.er import JOINTLY

MOMENTUM = Hyperparameter(
    "momentum",
    "float",
    0.8,
    unit="1",
    ge=0.0,
    lt=1.0,
    part="optimizer",
    help="momentum of SGD, which begins each task at zero",
)
DROPOUT = Hyperparameter(
    "dropout",
    "float",
    0.25,
    symbol="p",
    unit="1",
    ge=0.0,
    lt=1.0,
    part="network",
    help="probability that a hidden unit is dropped in a training step",
)
# The recipes that the author gives in place of the scripts', whose dropout of 0.5 is a typo and
# whose batches are too small on MNIST: github.com/imirzadeh/stable-continual-learning, issue 1 and
# 5 (MNIST: dropout 0.25, batches of 64) and 6 (CIFAR: rate 0.15, decay 0.85, dropout 0.1, 10).
NUMBERS = (
    replace(RATE_DECAY, on_images=0.85),
    MOMENTUM,
    replace(DROPOUT, on_images=0.1),
)
RATES = LearningRates(0.1, 0.15, 0.15)
BATCHES = (64, 10)
# Those of A-GEM and ER are in its external_libs: model/model.py, replicate_mnist_stable.sh. Batches
# of 32 are a part: with them 3,100 steps are about two tasks of its 50,000 examples, with ten less
# than one.
_REPLAY = (
    replace(
        RATE_DECAY,
        default=0.65,
        help="factor on the learning rate after every rate_decay_steps updates",
    ),
    replace(RATE_DECAY_STEPS, default=3100),
    replace(MOMENTUM, default=0.0),
    DROPOUT,
)
_REPLAY_RATES = LearningRates(0.1, 0.1, 0.1)
_REPLAY_BATCHES = (32, 10)
_SOURCE = (
    "Mirzadeh et al., Understanding the role of training regimes in continual learning, "
    "NeurIPS 2020"
)

STABLE_SGD = Method(
    name="stable_sgd",
    place=90,
    title="Stable SGD",
    learner="nccl_tf.methods.finetune:Finetune",
    learning_rates=RATES,
    batch_sizes=BATCHES,
    hyperparameters=NUMBERS,
    source=_SOURCE,
)

STABLE_AGEM = Method(
    name="stable_agem",
    place=100,
    title="Stable A-GEM",
    learner="nccl_tf.methods.agem:AGEM",
    memory="ring",
    learning_rates=_REPLAY_RATES,
    batch_sizes=_REPLAY_BATCHES,
    hyperparameters=(*_REPLAY, *TWO_GRADIENTS),
    source=_SOURCE,
)

STABLE_ER_RESERVOIR = Method(
    name="stable_er_reservoir",
    place=110,
    title="Stable ER-Reservoir",
    learner="nccl_tf.methods.er:ExperienceReplay",
    memory="reservoir",
    learning_rates=_REPLAY_RATES,
    batch_sizes=_REPLAY_BATCHES,
    hyperparameters=(*_REPLAY, *JOINTLY),
    source=_SOURCE,
)
