"""The row of GSS-Greedy, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import LearningRates, Method

NUMBERS = (
    Hyperparameter(
        "gss_iterations",
        "int",
        None,
        unit="steps",
        ge=1,
        default_doc="3, or 10 for a network with convolutions",
        help="pairs of steps on each stream batch: one on the batch, one on a memory batch",
    ),
    Hyperparameter(
        "gss_gradients",
        "int",
        10,
        symbol="n",
        unit="gradients",
        ge=1,
        help="gradients of random memory batches that new examples are compared with",
    ),
)

GSS_GREEDY = Method(
    name="gss_greedy",
    place=200,
    title="GSS-Greedy",
    passes="groups of the memory, for scores; several updates",
    learner="nccl_tf.methods.gss:GSSGreedy",
    memory="scored",
    learning_rates=LearningRates(mnist=0.05, cifar=0.01, mini_imagenet=0.01),
    hyperparameters=NUMBERS,
    source=(
        "Aljundi et al., Gradient based sample selection for online continual learning, "
        "NeurIPS 2019"
    ),
    refuses={
        "dark": "fills its memory by gradients of the labels' loss",
        "schedule": "takes several updates in a step",
        "batch_norm": "takes steps on stream and memory in turns",
    },
)
