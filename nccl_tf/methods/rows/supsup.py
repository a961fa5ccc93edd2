"""The row of SupSup, without TensorFlow."""

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.row import LearningRates, Method

NUMBERS = (
    Hyperparameter(
        "mask_density",
        "float",
        0.5,
        symbol="q",
        unit="1",
        gt=0.0,
        lt=1.0,
        help="share of each layer's weights that a mask keeps",
    ),
    Hyperparameter(
        "task_id_at_test",
        "choice",
        None,
        choices=("given", "inferred"),
        default_doc="given with a multi-head, else inferred",
        help="whether a test example comes with its task, or the learner infers it",
    ),
)
SUPERFLUOUS_OUTPUTS = Hyperparameter(
    "superfluous_outputs",
    "int",
    None,
    unit="outputs",
    ge=0,
    part="outputs",
    default_doc="100 with a single head, 0 with a multi-head",
    help="outputs beside those of the classes, by whose entropy the task is inferred too",
)

SUPSUP = Method(
    name="supsup",
    place=80,
    title="SupSup",
    learner="nccl_tf.methods.supsup.method:SupSup",
    takes_num_tasks=True,
    # Of SGD, chosen on the tuning tasks of permuted MNIST; the authors have RMSProp.
    learning_rates=LearningRates(mnist=1.0),
    hyperparameters=(*NUMBERS, SUPERFLUOUS_OUTPUTS),
    source="Wortsman et al., Supermasks in superposition, NeurIPS 2020",
    refuses={
        "average_weights": "learns a mask for each task, on weights that never change",
        "stream_mask": "finds an example's task by the outputs of all classes",
        "rates": "learns a mask for each task, on weights that never change",
        "alignment": "learns a mask for each task, on weights that never change",
    },
    trial={"num_tasks": 3},
)
