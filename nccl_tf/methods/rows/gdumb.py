"""The row of GDumb, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import LearningRates, Method, Work
from nccl_tf.methods.rows.stable import MOMENTUM

NUMBERS = (
    Hyperparameter(
        "passes",
        "int",
        None,
        unit="passes",
        ge=1,
        default_doc="128, or 256 for a network with convolutions",
        help="passes over the memory with a fresh network",
    ),
    Hyperparameter(
        "cutmix",
        "float",
        None,
        symbol="p",
        unit="1",
        ge=0.0,
        le=1.0,
        default_doc="0, or 0.5 for a network with convolutions",
        help="probability that a batch from the memory is mixed with itself by CutMix",
    ),
)
WEIGHT_DECAY = Hyperparameter(
    "weight_decay",
    "float",
    1e-06,
    unit="1/step size",
    ge=0.0,
    part="optimizer",
    help="share of every weight that SGD takes off per step and unit of step size",
)


def _rows_passed(work: Work) -> int:
    passes = work.numbers["passes"] or (256 if work.convolves else 128)
    size = work.memory_batch_size
    pass_of = sum(-(-stored // size) * size for stored in work.stored_after_tasks())
    return work.stream + passes * pass_of


GDUMB = Method(
    name="gdumb",
    place=190,
    title="GDumb",
    passes="the memory many times, at a task's end; no step before",
    learner="nccl_tf.methods.gdumb:GDumb",
    memory="balanced",
    memory_batch=16,
    learning_rates=LearningRates(mnist=0.05, cifar=0.05, mini_imagenet=0.05),
    hyperparameters=(*NUMBERS, replace(MOMENTUM, default=0.9), WEIGHT_DECAY),
    source=(
        "Prabhu et al., GDumb: a simple approach that questions our progress in "
        "continual learning, ECCV 2020"
    ),
    refuses={
        "average_weights": "trains its network from scratch at every task's end",
        "rate_decay": "trains from scratch at every task's end, by a schedule of its own",
        "schedule": "trains from scratch at every task's end, by a schedule of its own",
        "stream_mask": "takes no step on the stream",
        "rates": "trains a fresh network at every task's end, by a schedule of its own",
        "alignment": "trains its network from scratch at every task's end",
        "dark": "learns its memory with a fresh network, to which kept logits mean nothing",
    },
    rows_passed=_rows_passed,
)
