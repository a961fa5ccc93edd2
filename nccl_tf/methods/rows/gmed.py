"""The rows of GMED, on ER and on MIR, without TensorFlow."""

from dataclasses import replace

from nccl_tf.arguments.hyperparameters import BATCH_NORM, Hyperparameter
from nccl_tf.methods.row import Method, Work
from nccl_tf.methods.rows.er import SUM_OF_MEANS
from nccl_tf.methods.rows.mir import RATES, WITH_REPLAY
from nccl_tf.methods.rows.mir import rows_passed as rows_of_mir

NUMBERS = (
    Hyperparameter(
        "edit_stride",
        "float",
        0.1,
        symbol="a",
        unit="squared scaled pixel/unit of loss",
        ge=0.0,
        help="step size of an edit of memory images",
    ),
    Hyperparameter(
        "edit_regularization",
        "float",
        0.01,
        symbol="b",
        unit="1",
        help=(
            "weight of the loss that an edit keeps low; negative as in the released code, it "
            "raises it"
        ),
    ),
    Hyperparameter(
        "edit_decay",
        "float",
        1.0,
        symbol="γ",
        unit="1",
        gt=0.0,
        le=1.0,
        help="factor on the stride for each earlier edit of an example",
    ),
)
_EDITED = {"dark": "edits its examples, and the logits kept are those of the unedited ones"}
_SOURCE = (
    "Jin et al., Gradient-based editing of memory examples for online task-free continual "
    "learning, NeurIPS 2021"
)


def _edits(work: Work) -> int:
    """A virtual step and two weights for the memory batch, in every step."""
    return work.steps * (work.batch_size + 2 * work.memory_batch_size)


ER_GMED = Method(
    name="er_gmed",
    place=370,
    title="ER + GMED",
    passes="the memory batch at two weights",
    learner="nccl_tf.methods.gmed:ERGMED",
    memory="edited_reservoir",
    learning_rates=RATES,
    hyperparameters=(replace(BATCH_NORM, default="joint"), SUM_OF_MEANS, *NUMBERS),
    source=_SOURCE,
    refuses=_EDITED,
    rows_passed=lambda work: work.stream + _edits(work) + work.memory,
)

MIR_GMED = Method(
    name="mir_gmed",
    place=380,
    title="MIR + GMED",
    passes="candidates of the memory at two weights",
    learner="nccl_tf.methods.gmed:MIRGMED",
    memory="past_edited_reservoir",
    learning_rates=RATES,
    hyperparameters=(*WITH_REPLAY, *NUMBERS),
    source=_SOURCE,
    refuses=_EDITED,
    rows_passed=lambda work: rows_of_mir(work) + _edits(work),
)
