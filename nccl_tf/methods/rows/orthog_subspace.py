"""The row of ORTHOG-SUBSPACE, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import LearningRates, Method, Work
from nccl_tf.methods.rows.gem import WHOLE_TASKS

ORTHOG_MEMORY = Hyperparameter(
    "orthog_memory",
    "choice",
    None,
    choices=("on", "off"),
    part="memory",
    default_doc="off on permuted streams, on on split streams",
    help="whether past tasks are replayed and kernels kept orthonormal",
)
NUMBERS = (
    Hyperparameter(
        "cayley_iterations",
        "int",
        None,
        unit="iterations",
        ge=1,
        default_doc="exact",
        help="fixed-point iterations for the Cayley transform; 2 as the released code",
    ),
)


def _rows_passed(work: Work) -> int:
    return work.stream + work.replays * work.slots_of_a_task()


ORTHOG_SUBSPACE = Method(
    name="orthog_subspace",
    place=140,
    title="ORTHOG-SUBSPACE",
    passes="one past task of the memory",
    learner="nccl_tf.methods.orthog_subspace.method:OrthogSubspace",
    memory="ring",
    memory_batch=0,
    takes_num_tasks=True,
    learning_rates=LearningRates(cifar=0.4, mini_imagenet=0.2),
    hyperparameters=(ORTHOG_MEMORY, *NUMBERS),
    source=("Chaudhry et al., Continual learning in low-rank orthogonal subspaces, NeurIPS 2020"),
    refuses={
        "dark": WHOLE_TASKS,
        "rates": "keeps its kernels orthogonal by steps of its own",
    },
    rows_passed=_rows_passed,
    trial={"num_tasks": 3},
)
