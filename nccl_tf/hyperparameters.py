"""The numbers of the methods, declared once: name, symbol, unit, default and range.

The command makes one flag of each, and a learner takes it as the constructor argument of that name.
This module imports nothing heavy, so that the command can explain itself at once.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from nccl_tf.errors import UserError, check_name


@dataclass(frozen=True)
class Hyperparameter:
    """One number or choice of a method.

    Args:
        name: Name of the flag and of the constructor argument.
        kind: "float", "int" or "choice".
        default: Value when none is given; None switches an optional number off.
        symbol: Symbol in the paper, or "" where it has none.
        unit: Unit in words ("1", "1/step size").
        meaning: One sentence for the help text.
        above: Exclusive lower bound.
        least: Inclusive lower bound.
        below: Exclusive upper bound.
        most: Inclusive upper bound.
        choices: The valid values of a "choice".
        part: What takes it as an argument: the "learner", the "network" or the "optimizer"; or
            "memory", where it says whether there is one.
        unless_given: What a default of None means, in words.
    """

    name: str
    kind: str
    default: Any
    symbol: str
    unit: str
    meaning: str
    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    part: str = "learner"
    unless_given: str = "off"

    def check(self, value: Any) -> Any:
        """Return `value` if it is in range.

        Raises:
            UserError: The value is not finite, out of range or not one of the choices.
        """
        if value is None and self.default is None:
            return value
        if self.kind == "choice":
            return check_name(f"--{self.name}", value, self.choices)
        outside = (
            not math.isfinite(value)
            or (self.above is not None and value <= self.above)
            or (self.least is not None and value < self.least)
            or (self.below is not None and value >= self.below)
            or (self.most is not None and value > self.most)
        )
        if outside:
            raise UserError(
                f"--{self.name}={value} is out of range: expected {self.range_in_words()}"
            )
        return value

    def range_in_words(self) -> str:
        """The valid values in words, for messages and help."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        bounds = (
            (self.above, "above"),
            (self.least, "of at least"),
            (self.below, "below"),
            (self.most, "of at most"),
        )
        parts = [f"{word} {bound:g}" for bound, word in bounds if bound is not None]
        article = "a whole number" if self.kind == "int" else "a finite number"
        return " ".join([article, " and ".join(parts)]).strip()


SMOOTHNESS = Hyperparameter(
    "smoothness", "float", 1.0, "L", "1/step size",
    "smoothness constant of the loss in beta*; alpha L must stay below 1", above=0.0,
)  # fmt: skip
SMOOTHNESS_MODE = Hyperparameter(
    "smoothness_mode", "choice", "fixed", "", "-",
    "fixed (L is --smoothness), or an estimate on the memory batch, at most 0.9/alpha: secant "
    "(change of gradient over change of weights, every 10th step with replay) or power (largest "
    "eigenvalue of the Hessian, every 50th)", choices=("fixed", "secant", "power"),
)  # fmt: skip
GRADIENTS = Hyperparameter(
    "gradients", "choice", "auto", "", "-",
    "auto (networks of dense layers: one pass over both batches, neither gradient formed; every "
    "other network: two tapes), or two_tapes for every network", choices=("auto", "two_tapes"),
)  # fmt: skip
DELTA = Hyperparameter(
    "delta", "float", 1e-3, "delta", "1",
    "keeps beta_H below alpha in transfer: beta_H <= alpha (1 - delta)", above=0.0, below=1.0,
)  # fmt: skip
BETA_MAX = Hyperparameter(
    "beta_max", "float", None, "beta_max", "step size",
    "clips beta_H in transfer in place of alpha (1 - delta); off unless given", above=0.0,
)  # fmt: skip
BATCH_NORM = Hyperparameter(
    "batch_norm", "choice", "separate", "", "-",
    "which statistics memory and stream batches are normalised with",
    choices=("separate", "joint", "frozen"),
)  # fmt: skip
ER_WEIGHTING = Hyperparameter(
    "er_weighting", "choice", "joint_mean", "", "-",
    "mean loss over the joint batch, or mean over the stream plus mean over the memory batch",
    choices=("joint_mean", "sum_of_means"),
)  # fmt: skip
EWC_ESTIMATE = Hyperparameter(
    "ewc", "choice", "online", "", "-",
    "online (the latest task's anchor and Fisher information, from gradients of whole batches), "
    "separate (every task's own) or per_example (online, from gradients of single examples)",
    choices=("online", "separate", "per_example"),
)  # fmt: skip
EWC_LAMBDA = Hyperparameter(
    "ewc_lambda", "float", 10.0, "lambda", "1",
    "weight of the penalty; with an alpha lambda above 1 its steps can diverge", least=0.0,
)  # fmt: skip
EWC_WINDOW = Hyperparameter(
    "ewc_window", "int", None, "u", "steps",
    "steps in a window of the running Fisher information", least=1,
    unless_given="10, or 50 for a network with convolutions",
)  # fmt: skip
GEM_MARGIN = Hyperparameter(
    "gem_margin", "float", 0.5, "gamma", "1",
    "least weight of each past task's gradient in a projected step", least=0.0,
)  # fmt: skip
GEM_RIDGE = Hyperparameter(
    "gem_ridge", "float", 1e-3, "", "squared gradient norm",
    "added to the diagonal of the past gradients' inner products", least=0.0,
)  # fmt: skip
GEM_SOLVER = Hyperparameter(
    "gem_solver", "choice", "nnls", "", "-",
    "what solves the quadratic program: nnls (SciPy) or quadprog (a package to install)",
    choices=("nnls", "quadprog"),
)  # fmt: skip
BGD_SAMPLES = Hyperparameter(
    "bgd_samples", "int", 10, "S", "samples", "weights drawn in a step", least=1
)
BGD_SIGMA = Hyperparameter(
    "bgd_sigma", "float", 0.06, "sigma_0", "weight",
    "standard deviation of every weight before training", above=0.0,
)  # fmt: skip
MASK_DENSITY = Hyperparameter(
    "mask_density", "float", 0.5, "q", "1",
    "share of each layer's weights that a mask keeps", above=0.0, below=1.0,
)  # fmt: skip
TASK_ID_AT_TEST = Hyperparameter(
    "task_id_at_test", "choice", None, "", "-",
    "whether a test example comes with its task, or the learner infers it",
    choices=("given", "inferred"), unless_given="given with a multi-head, else inferred",
)  # fmt: skip
CANDIDATES = Hyperparameter(
    "candidates", "int", 50, "C", "examples",
    "memory examples drawn, of which those are replayed that the step would harm most", least=1,
)  # fmt: skip
EDIT_STRIDE = Hyperparameter(
    "edit_stride", "float", 0.1, "a", "squared scaled pixel/unit of loss",
    "step size of an edit of memory images", least=0.0,
)  # fmt: skip
EDIT_REGULARIZATION = Hyperparameter(
    "edit_regularization", "float", 0.01, "b", "1",
    "weight of the loss that an edit keeps low; negative as in the released code, it raises it",
)  # fmt: skip
EDIT_DECAY = Hyperparameter(
    "edit_decay", "float", 1.0, "gamma", "1",
    "factor on the stride for each earlier edit of an example", above=0.0, most=1.0,
)  # fmt: skip
RATE_DECAY = Hyperparameter(
    "rate_decay", "float", 0.8, "gamma", "1",
    "factor on the learning rate at the beginning of each task, the first one too; it stays at "
    "5e-5 or above", above=0.0, most=1.0,
)  # fmt: skip
REPLAY_RATE_DECAY = replace(RATE_DECAY, default=0.65)
MOMENTUM = Hyperparameter(
    "momentum", "float", 0.8, "", "1",
    "momentum of SGD, which begins each task at zero", least=0.0, below=1.0, part="optimizer",
)  # fmt: skip
DROPOUT = Hyperparameter(
    "dropout", "float", 0.5, "p", "1",
    "probability that a hidden unit is dropped in a training step", least=0.0, below=1.0,
    part="network",
)  # fmt: skip
LINE_POINTS = Hyperparameter(
    "line_points", "int", 11, "|S|", "points",
    "points of each line on which the merged weights keep the loss low; 1 is its end", least=1,
)  # fmt: skip
LINE_START = Hyperparameter(
    "line_start", "float", 0.25, "a", "1",
    "where the descent to the merged weights begins, from the weights before the task (0) to those "
    "after it (1)", least=0.0, most=1.0,
)  # fmt: skip
LINE_RATE = Hyperparameter(
    "line_learning_rate", "float", 0.05, "", "step size",
    "step size of the descent to the merged weights", above=0.0,
)  # fmt: skip
LINE_STEPS = Hyperparameter(
    "line_steps", "int", None, "", "steps",
    "steps of the descent to the merged weights", least=1,
    unless_given="one pass over the stored examples, 20 at least",
)  # fmt: skip
LINE_GRADIENT = Hyperparameter(
    "line_gradient", "choice", "scaled", "", "-",
    "scaled (a point's gradient by the end of its line) or unscaled (as the code of CL-Gym)",
    choices=("scaled", "unscaled"),
)  # fmt: skip
MER_VARIANT = Hyperparameter(
    "mer_variant", "choice", "current_multiplier", "", "-",
    "current_multiplier (memory examples one by one, then the stream batch with a longer step) or "
    "alg1 (algorithm 1 of the paper)", choices=("current_multiplier", "alg1"),
)  # fmt: skip
META_RATE = Hyperparameter(
    "meta_rate", "float", 0.1, "gamma", "1",
    "share of the way to the weights after all inner steps that is gone", above=0.0, most=1.0,
)  # fmt: skip
STREAM_MULTIPLIER = Hyperparameter(
    "stream_multiplier", "float", None, "s", "1",
    "step size on the stream batch over that on a memory example (current_multiplier)", above=0.0,
    unless_given="10, or 5 for a network with convolutions",
)  # fmt: skip
WITHIN_BATCH_RATE = Hyperparameter(
    "within_batch_rate", "float", 1.0, "beta", "1",
    "share of the way that is gone within a batch (alg1)", above=0.0, most=1.0,
)  # fmt: skip
BATCHES_PER_EXAMPLE = Hyperparameter(
    "batches_per_example", "int", 1, "s", "batches",
    "batches of memory examples for each stream example (alg1)", least=1,
)  # fmt: skip
ORTHOG_MEMORY = Hyperparameter(
    "orthog_memory", "choice", None, "", "-",
    "whether past tasks are replayed and kernels kept orthonormal", choices=("on", "off"),
    part="memory", unless_given="off on permuted streams, on on split streams",
)  # fmt: skip
CAYLEY_ITERATIONS = Hyperparameter(
    "cayley_iterations", "int", None, "", "iterations",
    "fixed-point iterations for the Cayley transform; 2 as the released code", least=1,
    unless_given="exact",
)  # fmt: skip
GSS_ITERATIONS = Hyperparameter(
    "gss_iterations", "int", None, "", "steps",
    "pairs of steps on each stream batch: one on the batch, one on a memory batch", least=1,
    unless_given="3, or 10 for a network with convolutions",
)  # fmt: skip
GSS_GRADIENTS = Hyperparameter(
    "gss_gradients", "int", 10, "n", "gradients",
    "gradients of random memory batches that new examples are compared with", least=1,
)  # fmt: skip
LOG_ALPHA = Hyperparameter(
    "log_alpha", "float", None, "log alpha", "nat",
    "logarithm of the weight of a new expert; the lower it is, the fewer there are",
    unless_given="-400 with mlp_experts, -450 with conv_experts",
)  # fmt: skip
VAE_STEPS = Hyperparameter(
    "vae_steps", "int", None, "", "steps",
    "training steps of a new expert's autoencoder", least=0,
    unless_given="8000 with mlp_experts, 4000 with conv_experts, but no more than 16 for each slot "
    "of the short-term memory",
)  # fmt: skip
CLASSIFIER_STEPS = Hyperparameter(
    "classifier_steps", "int", None, "", "steps",
    "training steps of a new expert's classifier", least=0,
    unless_given="2000 with mlp_experts, 1000 with conv_experts",
)  # fmt: skip
SLEEP_BATCH_SIZE = Hyperparameter(
    "sleep_batch_size", "int", 50, "", "examples",
    "examples of the short-term memory in a training step of a new expert", least=1,
)  # fmt: skip
VAE_RATE = Hyperparameter(
    "vae_learning_rate", "float", None, "", "step size",
    "step size of Adam for the autoencoders; --learning_rate is the classifiers'", above=0.0,
    unless_given="4e-4 with mlp_experts, 2e-4 with conv_experts",
)  # fmt: skip
CLASSIFIER_CHILL = Hyperparameter(
    "classifier_chill", "float", 0.01, "", "1",
    "temperature of the classifiers where they tell which expert an example belongs to", above=0.0,
)  # fmt: skip
MAX_EXPERTS = Hyperparameter(
    "max_experts", "int", 20, "", "experts",
    "greatest number of experts; when it is reached, no example counts as new", least=1,
    part="network",
)  # fmt: skip
PASSES = Hyperparameter(
    "passes", "int", None, "", "passes", "passes over the memory with a fresh network", least=1,
    unless_given="128, or 256 for a network with convolutions",
)  # fmt: skip
CUTMIX = Hyperparameter(
    "cutmix", "float", None, "p", "1",
    "probability that a batch from the memory is mixed with itself by CutMix", least=0.0, most=1.0,
    unless_given="0, or 0.5 for a network with convolutions",
)  # fmt: skip
WEIGHT_DECAY = Hyperparameter(
    "weight_decay", "float", 1e-6, "", "1/step size",
    "share of every weight that SGD takes off per step and unit of step size", least=0.0,
    part="optimizer",
)  # fmt: skip
HERDING_POOL = Hyperparameter(
    "herding_pool", "int", 2500, "", "examples",
    "size of the uniform sample of the open task from which exemplars are chosen at its end",
    least=1,
)  # fmt: skip
