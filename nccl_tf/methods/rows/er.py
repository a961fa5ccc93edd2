"""The rows of experience replay, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.choices import ER_WEIGHTINGS
from nccl_tf.arguments.hyperparameters import BATCH_NORM, Hyperparameter
from nccl_tf.methods.row import LearningRates, Method

ER_WEIGHTING = Hyperparameter(
    "er_weighting",
    "choice",
    "joint_mean",
    choices=ER_WEIGHTINGS,
    help=(
        "mean loss over the joint batch, or mean over the stream plus mean over the memory batch"
    ),
)
SUM_OF_MEANS = replace(ER_WEIGHTING, default="sum_of_means")
NUMBERS = (ER_WEIGHTING,)
JOINTLY = (replace(BATCH_NORM, default="joint"), ER_WEIGHTING)
_SOURCE = "Chaudhry et al., On tiny episodic memories in continual learning, 2019"

ER_RING = Method(
    name="er_ring",
    place=20,
    title="ER-Ring",
    learner="nccl_tf.methods.er:ExperienceReplay",
    memory="ring",
    hyperparameters=JOINTLY,
    on_replicas=True,
    source=_SOURCE,
)

ER_RESERVOIR = Method(
    name="er_reservoir",
    place=30,
    title="ER-Reservoir",
    learner="nccl_tf.methods.er:ExperienceReplay",
    memory="reservoir",
    learning_rates=LearningRates(cifar=0.1, mini_imagenet=0.1),
    hyperparameters=JOINTLY,
    on_replicas=True,
    source=_SOURCE,
)
