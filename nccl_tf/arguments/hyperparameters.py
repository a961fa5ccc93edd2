"""The numbers of the methods, declared once: name, symbol, unit, default, range and help.

The command makes one flag of each, and a learner takes it as the constructor argument of that name.
This module imports nothing heavy, so that the command can explain itself at once.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from nccl_tf.arguments.choices import (
    BATCH_NORM_ORDERS,
    BATCH_NORMS,
    ER_WEIGHTINGS,
    GRAD_SCOPES,
    STREAM_MASKS,
)
from nccl_tf.arguments.parameters import Parameter
from nccl_tf.errors import UserError, checked_name

SAME_AS_DEFAULT = object()
KINDS = ("float", "int", "choice")


@dataclass(frozen=True)
class Hyperparameter(Parameter):
    """One number or choice of a method; a class of learners declares its own in `hyperparameters`.

    Args:
        **kwargs: As for `Parameter`; the kind is "float", "int" or "choice".
        part: What takes it as an argument: the "learner", the "network" or the "optimizer"; or
            "memory", where it says whether there is one; or "outputs", where it is a number of
            outputs that the network has beside those of the classes.
        on_images: The command's default on CIFAR and mini-ImageNet. Left out where it is no other.

    Raises:
        UserError: The kind is another.

    Example:
        >>> META_RATE = Hyperparameter(
        ...     "meta_rate", "float", 0.1, symbol="γ", unit="1", gt=0.0, le=1.0,
        ...     help="share of the way to the weights after all inner steps that is gone",
        ... )
        >>> META_RATE.check(0.5)
        0.5
    """

    _: KW_ONLY
    part: str = "learner"
    on_images: Any = SAME_AS_DEFAULT

    def __post_init__(self) -> None:
        checked_name(f"kind of the hyperparameter {self.name}", self.kind, KINDS)

    def taken(self, value: Any) -> Any:
        """A value as a learner keeps it: checked, and a Python float, int or str.

        Args:
            value: What its constructor received; None where the default is None.

        Raises:
            UserError: As `check`.
        """
        checked = self.check(value)
        kind = {"float": float, "int": int}.get(self.kind)
        return checked if checked is None or kind is None else kind(checked)

    def default_of(self, family: str) -> Any:
        """The command's default on data sets of a family, as the catalog of streams names them."""
        images = family in ("cifar", "mini_imagenet") and self.on_images is not SAME_AS_DEFAULT
        return self.on_images if images else self.default

    def describe_default(self) -> str:
        """The default in words, with that on CIFAR and mini-ImageNet where it is another."""
        text = super().describe_default()
        if self.on_images is SAME_AS_DEFAULT or str(self.on_images) == text:
            return text
        return f"{text}, on CIFAR and mini-ImageNet {self.on_images}"


Rows = tuple[Hyperparameter, ...]
"""What a class of learners declares as its `hyperparameters`."""


def rows_of(cls: type) -> dict[str, Hyperparameter]:
    """The rows that a class of learners and its bases declare for its constructor, by name.

    Args:
        cls: The class; of equal names the row nearest to it counts.

    Raises:
        UserError: Its `hyperparameters` are no rows.
    """
    rows: dict[str, Hyperparameter] = {}
    for base in cls.__mro__:
        declared = vars(base).get("hyperparameters", ())
        if not isinstance(declared, (tuple, list)) or not all(
            isinstance(row, Hyperparameter) for row in declared
        ):
            raise UserError(
                f"received hyperparameters = {declared!r} in the class {base.__name__}, expected a "
                "tuple of nccl_tf.Hyperparameter: give another attribute another name"
            )
        own = {row.name: row for row in declared if row.part == "learner"}
        rows |= {name: row for name, row in own.items() if name not in rows}
    return rows


SMOOTHNESS = Hyperparameter(
    "smoothness",
    "float",
    1.0,
    symbol="L",
    unit="1/step size",
    gt=0.0,
    help="smoothness constant of the loss in β*; α L must stay below 1",
)
GRADIENTS = Hyperparameter(
    "gradients",
    "choice",
    "auto",
    choices=("auto", "two_tapes"),
    help=(
        "auto (networks of dense layers: one pass over both batches, neither gradient formed;"
        " every other network: two tapes), or two_tapes for every network"
    ),
)
DELTA = Hyperparameter(
    "delta",
    "float",
    0.001,
    symbol="δ",
    unit="1",
    gt=0.0,
    lt=1.0,
    help="keeps β_H below α in transfer: β_H ≤ α (1 - δ)",
)
BETA_MAX = Hyperparameter(
    "beta_max",
    "float",
    None,
    symbol="β_max",
    unit="step size",
    gt=0.0,
    help="clips β_H in transfer in place of α (1 - δ)",
)
BATCH_NORM = Hyperparameter(
    "batch_norm",
    "choice",
    "separate",
    choices=BATCH_NORMS,
    help="which statistics memory and stream batches are normalised with",
)
GRAD_SCOPE = Hyperparameter(
    "grad_scope",
    "choice",
    "all",
    choices=GRAD_SCOPES,
    help=(
        "what Λ and both norms are taken over: all variables together, or layer: each kernel, "
        "bias, scale or offset by itself, with step sizes of its own"
    ),
)
BATCH_NORM_ORDER = Hyperparameter(
    "batch_norm_order",
    "choice",
    "memory_first",
    choices=BATCH_NORM_ORDERS,
    help=(
        "which batch passes batch norm first where each has its own statistics; the other one "
        "moves the moving averages last"
    ),
)
GEM_BATCH_NORM = replace(BATCH_NORM, choices=("separate", "frozen"))
ER_WEIGHTING = Hyperparameter(
    "er_weighting",
    "choice",
    "joint_mean",
    choices=ER_WEIGHTINGS,
    help=(
        "mean loss over the joint batch, or mean over the stream plus mean over the memory batch"
    ),
)
MEGA_EPSILON = Hyperparameter(
    "mega_epsilon",
    "float",
    1e-5,
    symbol="ε",
    unit="unit of loss",
    gt=0.0,
    help="a mean stream loss at or below it counts as fitted: the step is then replay alone",
)
GEC_ALPHA = Hyperparameter(
    "gec_alpha",
    "float",
    0.5,
    symbol="a",
    unit="1/step size",
    gt=0.0,
    help="strength of the barrier: how fast a memory loss above the tolerance is lowered",
)
GEC_TOLERANCE = Hyperparameter(
    "gec_tolerance",
    "float",
    None,
    symbol="ε",
    unit="unit of loss",
    ge=0.0,
    default_doc="5 % above the mean training loss of the ended tasks",
    help="the memory loss that is tolerated",
)
EWC_LAMBDA = Hyperparameter(
    "ewc_lambda",
    "float",
    10.0,
    symbol="λ",
    unit="1",
    ge=0.0,
    help="weight of the penalty; with an α λ above 1 its steps can diverge",
)
EWC_WINDOW = Hyperparameter(
    "ewc_window",
    "int",
    None,
    symbol="u",
    unit="steps",
    ge=1,
    default_doc="10, or 50 for a network with convolutions",
    help="steps in a window of the running Fisher information",
)
IMPORTANCE_EXAMPLES = Hyperparameter(
    "importance_examples",
    "int",
    2500,
    unit="examples",
    ge=1,
    help="size of the uniform sample of the open task that importances are measured on at its end",
)
GEM_MARGIN = Hyperparameter(
    "gem_margin",
    "float",
    0.5,
    symbol="γ",
    unit="1",
    ge=0.0,
    help="least weight of each past task's gradient in a projected step",
)
GEM_RIDGE = Hyperparameter(
    "gem_ridge",
    "float",
    0.001,
    unit="squared gradient norm",
    ge=0.0,
    help="added to the diagonal of the past gradients' inner products",
)
BGD_SAMPLES = Hyperparameter(
    "bgd_samples",
    "int",
    10,
    symbol="S",
    unit="samples",
    ge=1,
    help="weights drawn in a step",
)
BGD_SIGMA = Hyperparameter(
    "bgd_sigma",
    "float",
    0.06,
    symbol="σ₀",
    unit="weight",
    gt=0.0,
    help="standard deviation of every weight before training",
)
MASK_DENSITY = Hyperparameter(
    "mask_density",
    "float",
    0.5,
    symbol="q",
    unit="1",
    gt=0.0,
    lt=1.0,
    help="share of each layer's weights that a mask keeps",
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
TASK_ID_AT_TEST = Hyperparameter(
    "task_id_at_test",
    "choice",
    None,
    choices=("given", "inferred"),
    default_doc="given with a multi-head, else inferred",
    help="whether a test example comes with its task, or the learner infers it",
)
CANDIDATES = Hyperparameter(
    "candidates",
    "int",
    50,
    symbol="C",
    unit="examples",
    ge=1,
    help="memory examples drawn; those that the step would harm most are replayed",
)
EDIT_STRIDE = Hyperparameter(
    "edit_stride",
    "float",
    0.1,
    symbol="a",
    unit="squared scaled pixel/unit of loss",
    ge=0.0,
    help="step size of an edit of memory images",
)
EDIT_REGULARIZATION = Hyperparameter(
    "edit_regularization",
    "float",
    0.01,
    symbol="b",
    unit="1",
    help=(
        "weight of the loss that an edit keeps low; negative as in the released code, it raises it"
    ),
)
EDIT_DECAY = Hyperparameter(
    "edit_decay",
    "float",
    1.0,
    symbol="γ",
    unit="1",
    gt=0.0,
    le=1.0,
    help="factor on the stride for each earlier edit of an example",
)
RATE_DECAY = Hyperparameter(
    "rate_decay",
    "float",
    0.8,
    symbol="γ",
    unit="1",
    gt=0.0,
    le=1.0,
    help=(
        "factor on the learning rate at the beginning of each task, the first one too; it "
        "stays at 5e-5 or above"
    ),
)
AVERAGE_WEIGHTS = Hyperparameter(
    "average_weights",
    "float",
    None,
    symbol="m",
    unit="1",
    gt=0.0,
    lt=1.0,
    help="evaluate also with a moving average of the weights: its factor in each step",
)
RATE_DECAY_STEPS = Hyperparameter(
    "rate_decay_steps",
    "int",
    None,
    symbol="n",
    unit="steps",
    ge=1,
    help="decay the learning rate every n steps, in place of at the beginning of each task",
)
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
LINE_POINTS = Hyperparameter(
    "line_points",
    "int",
    11,
    symbol="|S|",
    unit="points",
    ge=1,
    help="points of each line on which the merged weights keep the loss low; 1 is its end",
)
LINE_START = Hyperparameter(
    "line_start",
    "float",
    0.5,
    symbol="a",
    unit="1",
    ge=0.0,
    le=1.0,
    help=(
        "where the descent to the merged weights begins, from the weights before the task (0)"
        " to those after it (1)"
    ),
)
LINE_RATE = Hyperparameter(
    "line_learning_rate",
    "float",
    0.02,
    unit="step size",
    gt=0.0,
    help="step size of the descent to the merged weights",
)
LINE_STEPS = Hyperparameter(
    "line_steps",
    "int",
    None,
    unit="steps",
    ge=1,
    default_doc="one pass over the stored examples, 50 at least",
    help="steps of the descent to the merged weights",
)
LINE_EXAMPLES = Hyperparameter(
    "line_examples",
    "int",
    200,
    unit="examples",
    ge=0,
    help=(
        "size of the uniform sample of the task at whose end weights are merged; 0 for the "
        "examples of it that the memory holds"
    ),
)
META_RATE = Hyperparameter(
    "meta_rate",
    "float",
    0.1,
    symbol="γ",
    unit="1",
    gt=0.0,
    le=1.0,
    help="share of the way to the weights after all inner steps that is gone",
)
STREAM_MULTIPLIER = Hyperparameter(
    "stream_multiplier",
    "float",
    None,
    symbol="s",
    unit="1",
    gt=0.0,
    default_doc="10, or 5 for a network with convolutions",
    help="step size on the stream batch over that on a memory example",
)
MER_BATCH_NORM = Hyperparameter(
    "mer_batch_norm",
    "choice",
    None,
    on_images="example",
    choices=("example", "moving"),
    default_doc="example",
    help=(
        "statistics that batch norm takes where single examples pass: of the example itself, as "
        "the paper's code base, or the moving averages"
    ),
)
ORTHOG_MEMORY = Hyperparameter(
    "orthog_memory",
    "choice",
    None,
    choices=("on", "off"),
    part="memory",
    default_doc="off on permuted streams, on on split streams",
    help="whether past tasks are replayed and kernels kept orthonormal",
)
CAYLEY_ITERATIONS = Hyperparameter(
    "cayley_iterations",
    "int",
    None,
    unit="iterations",
    ge=1,
    default_doc="exact",
    help="fixed-point iterations for the Cayley transform; 2 as the released code",
)
GSS_ITERATIONS = Hyperparameter(
    "gss_iterations",
    "int",
    None,
    unit="steps",
    ge=1,
    default_doc="3, or 10 for a network with convolutions",
    help="pairs of steps on each stream batch: one on the batch, one on a memory batch",
)
GSS_GRADIENTS = Hyperparameter(
    "gss_gradients",
    "int",
    10,
    symbol="n",
    unit="gradients",
    ge=1,
    help="gradients of random memory batches that new examples are compared with",
)
LOG_ALPHA = Hyperparameter(
    "log_alpha",
    "float",
    None,
    symbol="log α",
    unit="nat",
    default_doc="-400 with mlp_experts, -450 with conv_experts",
    help="logarithm of the weight of a new expert; the lower it is, the fewer there are",
)
VAE_STEPS = Hyperparameter(
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
)
CLASSIFIER_STEPS = Hyperparameter(
    "classifier_steps",
    "int",
    None,
    unit="steps",
    ge=0,
    default_doc="2000 with mlp_experts, 1000 with conv_experts",
    help="training steps of a new expert's classifier",
)
SLEEP_BATCH_SIZE = Hyperparameter(
    "sleep_batch_size",
    "int",
    50,
    unit="examples",
    ge=1,
    help="examples of the short-term memory in a training step of a new expert",
)
VAE_RATE = Hyperparameter(
    "vae_learning_rate",
    "float",
    None,
    unit="step size",
    gt=0.0,
    default_doc="4e-4 with mlp_experts, 2e-4 with conv_experts",
    help="step size of Adam for the autoencoders; --learning_rate is the classifiers'",
)
CLASSIFIER_CHILL = Hyperparameter(
    "classifier_chill",
    "float",
    0.01,
    unit="1",
    gt=0.0,
    help=("temperature of the classifiers where they tell which expert an example belongs to"),
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
PASSES = Hyperparameter(
    "passes",
    "int",
    None,
    unit="passes",
    ge=1,
    default_doc="128, or 256 for a network with convolutions",
    help="passes over the memory with a fresh network",
)
CUTMIX = Hyperparameter(
    "cutmix",
    "float",
    None,
    symbol="p",
    unit="1",
    ge=0.0,
    le=1.0,
    default_doc="0, or 0.5 for a network with convolutions",
    help="probability that a batch from the memory is mixed with itself by CutMix",
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
HERDING_POOL = Hyperparameter(
    "herding_pool",
    "int",
    2500,
    unit="examples",
    ge=1,
    help=("size of the uniform sample of the open task from which exemplars are chosen at its end"),
)
DER_ALPHA = Hyperparameter(
    "der_alpha",
    "float",
    0.5,
    ge=0.0,
    symbol="α",
    help="weight of the squared difference to the stored logits",
)
DER_BETA = Hyperparameter(
    "der_beta",
    "float",
    0.5,
    ge=0.0,
    symbol="β",
    help="weight of the cross-entropy on a second memory batch",
)
LWF_WEIGHT = Hyperparameter(
    "lwf_weight",
    "float",
    1.0,
    ge=0.0,
    symbol="λ",
    help="weight of the distance to the old outputs for old classes",
)
LWF_TEMPERATURE = Hyperparameter(
    "lwf_temperature",
    "float",
    2.0,
    gt=0.0,
    symbol="T",
    help="temperature of both softmaxes; a high one compares small outputs too",
)
SI_C = Hyperparameter(
    "si_c",
    "float",
    0.1,
    ge=0.0,
    symbol="c",
    help="weight of the penalty; with an α c Ω above 1 steps can diverge",
)
SI_XI = Hyperparameter(
    "si_xi",
    "float",
    0.1,
    gt=0.0,
    symbol="ξ",
    unit="squared weight",
    help="added to a weight's squared distance; keeps its importance finite",
)
EWC_GAMMA = Hyperparameter(
    "ewc_gamma",
    "float",
    1.0,
    ge=0.0,
    le=1.0,
    symbol="γ",
    help="share of the Fisher information that is left when another task ends",
)
MAS_LAMBDA = Hyperparameter(
    "mas_lambda",
    "float",
    0.1,
    ge=0.0,
    symbol="λ",
    help="weight of the penalty; with an α λ Ω above 1 it diverges",
)
CLSER_WEIGHT = Hyperparameter(
    "clser_weight",
    "float",
    0.1,
    symbol="λ",
    unit="1",
    ge=0.0,
    help="weight of the squared difference to the better average's logits",
)
STABLE_DECAY = Hyperparameter(
    "stable_decay",
    "float",
    0.999,
    symbol="α_S",
    unit="1",
    ge=0.0,
    lt=1.0,
    help="share that the stable average keeps of itself in an update",
)
PLASTIC_DECAY = Hyperparameter(
    "plastic_decay",
    "float",
    0.999,
    symbol="α_P",
    unit="1",
    ge=0.0,
    lt=1.0,
    help="share that the plastic average keeps of itself in an update",
)
STABLE_RATE = Hyperparameter(
    "stable_rate",
    "float",
    0.7,
    symbol="r_S",
    unit="1",
    gt=0.0,
    le=1.0,
    help="probability that a step updates the stable average",
)
PLASTIC_RATE = Hyperparameter(
    "plastic_rate",
    "float",
    0.9,
    symbol="r_P",
    unit="1",
    gt=0.0,
    le=1.0,
    help="probability that a step updates the plastic average",
)
LPR_OMEGA = Hyperparameter(
    "lpr_omega",
    "float",
    1.0,
    symbol="ω₀",
    unit="1",
    ge=0.0,
    help="how much a layer's outputs on memory examples are held; 0 for not",
)
LPR_BETA = Hyperparameter(
    "lpr_beta",
    "float",
    1.0,
    symbol="β",
    unit="1",
    ge=0.0,
    le=2.0,
    help="power of the places of an image that ω is divided by",
)
LPR_EVERY = Hyperparameter(
    "lpr_every",
    "int",
    10,
    unit="steps",
    ge=1,
    help="steps from one preconditioner to the next",
)
LPR_EXAMPLES = Hyperparameter(
    "lpr_examples",
    "int",
    None,
    symbol="N",
    unit="examples",
    ge=1,
    default_doc="all that the memory holds",
    help="memory examples that a preconditioner is taken from; fewer are faster",
)
SHRINKAGE = Hyperparameter(
    "shrinkage",
    "float",
    1e-4,
    symbol="ε",
    unit="1",
    gt=0.0,
    le=1.0,
    help="share of the unit matrix in the covariance; 1 is the nearest class mean",
)
NCM_DISTANCE = Hyperparameter(
    "ncm_distance",
    "choice",
    "euclidean",
    choices=("euclidean", "cosine"),
    help="between the features of an example and the mean of a class",
)
PROJECTED_FEATURES = Hyperparameter(
    "projected_features",
    "int",
    2000,
    symbol="M",
    unit="features",
    ge=1,
    help="random features; the paper has 10,000",
)
RIDGE = Hyperparameter(
    "ridge",
    "float",
    None,
    symbol="λ",
    gt=0.0,
    default_doc="chosen at every task's end",
    help="added to the diagonal of the Gram matrix",
)

DARK = Hyperparameter(
    "dark",
    "float",
    0.0,
    symbol="a",
    unit="1",
    ge=0.0,
    help=(
        "weight in the memory loss of the squared difference to the logits that the memory kept of "
        "an example (dark replay)"
    ),
)
REPLAY_LABELS = Hyperparameter(
    "replay_labels",
    "float",
    1.0,
    symbol="b",
    unit="1",
    ge=0.0,
    help="weight in the memory loss of the loss on labels",
)
STREAM_MASK = Hyperparameter(
    "stream_mask",
    "choice",
    "all",
    choices=STREAM_MASKS,
    help=(
        "single head: classes that the softmax of the stream's loss runs over: all, present (in "
        "the stream batch, as in ER-ACE), task (in the open task so far) or seen (in the stream "
        "so far)"
    ),
)
OPTIONS = (DARK, REPLAY_LABELS, STREAM_MASK, AVERAGE_WEIGHTS)
"""Options of every method that does not refuse them; `Method.options` has other defaults."""


def check_replay_weights(dark: float, replay_labels: float) -> None:
    """Check that a memory loss is left.

    Raises:
        UserError: Both weights are 0.
    """
    if not dark and not replay_labels:
        raise UserError(
            "received dark=0 and replay_labels=0, which leave no memory loss: raise one of the "
            "two, or use finetune to train without a memory"
        )
