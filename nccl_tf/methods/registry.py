"""The methods by name: a row each, without importing TensorFlow."""

from dataclasses import dataclass, replace
from typing import Any

from nccl_tf.errors import check_name
from nccl_tf.hyperparameters import (
    BATCH_NORM,
    BATCHES_PER_EXAMPLE,
    BETA_MAX,
    BGD_SAMPLES,
    BGD_SIGMA,
    CANDIDATES,
    CAYLEY_ITERATIONS,
    CLASSIFIER_CHILL,
    CLASSIFIER_STEPS,
    CUTMIX,
    DELTA,
    DROPOUT,
    EDIT_DECAY,
    EDIT_REGULARIZATION,
    EDIT_STRIDE,
    ER_WEIGHTING,
    EWC_ESTIMATE,
    EWC_LAMBDA,
    EWC_WINDOW,
    GEM_MARGIN,
    GEM_RIDGE,
    GEM_SOLVER,
    GRADIENTS,
    GSS_GRADIENTS,
    GSS_ITERATIONS,
    HERDING_POOL,
    LINE_GRADIENT,
    LINE_POINTS,
    LINE_RATE,
    LINE_START,
    LINE_STEPS,
    LOG_ALPHA,
    MASK_DENSITY,
    MAX_EXPERTS,
    MER_VARIANT,
    META_RATE,
    MOMENTUM,
    ORTHOG_MEMORY,
    PASSES,
    RATE_DECAY,
    REPLAY_RATE_DECAY,
    SLEEP_BATCH_SIZE,
    SMOOTHNESS,
    SMOOTHNESS_MODE,
    STREAM_MULTIPLIER,
    TASK_ID_AT_TEST,
    VAE_RATE,
    VAE_STEPS,
    WEIGHT_DECAY,
    WITHIN_BATCH_RATE,
    Hyperparameter,
)
from nccl_tf.memories.kinds import import_class


@dataclass(frozen=True)
class LearningRates:
    """Default learning rates by family of data sets (decisions: the paper's starred values)."""

    mnist: float = 0.1
    cifar: float = 0.03
    mini_imagenet: float = 0.03


@dataclass(frozen=True)
class Refusal:
    """A kind of stream or head that a method has no meaning on.

    Args:
        reason: Why, as the end of a sentence that begins "METHOD cannot learn this stream: ".
        kind: "permuted" or "split"; None for both.
        head: "single" or "multi"; None for both.
    """

    reason: str
    kind: str | None = None
    head: str | None = None


@dataclass(frozen=True)
class Method:
    """A row of the registry.

    Args:
        name: Name at the command.
        title: Name in tables, as the paper prints it.
        learner: "module:Class" of the learner, or the class itself.
        memory: Kind of memory, one of `nccl_tf.memories.kinds`, or None.
        memory_batch: Default number of examples drawn from the memory at once; 0 if none are.
        takes_num_tasks: Whether its constructor takes `num_tasks`, the number of tasks to learn.
        learning_rates: Defaults by family of data sets.
        hyperparameters: The method's own numbers, arguments of the learner's constructor unless
            their `part` says otherwise.
        joint: Whether it learns all tasks at once, on the union of their examples.
        refusals: Streams and heads that it has no meaning on.
        epochs: Default number of passes over the training examples.
        source: Where the method comes from: authors, title, venue and year.
        on_replicas: Whether it runs on several devices or workers (`Learner.on_replicas`).
        networks: The networks it can train: by default the first on MNIST and digits, the second
            elsewhere.
    """

    name: str
    title: str
    learner: str | type
    memory: str | None = None
    learning_rates: LearningRates = LearningRates()
    hyperparameters: tuple[Hyperparameter, ...] = ()
    joint: bool = False
    refusals: tuple[Refusal, ...] = ()
    epochs: int = 1
    source: str = ""
    networks: tuple[str, ...] = ("mlp", "resnet18_reduced", "resnet18")
    memory_batch: int = 10
    takes_num_tasks: bool = False
    on_replicas: bool = False

    def refusal(self, kind: str, head: str) -> str | None:
        """Why the method has no meaning on a kind of stream with a head, or None if it has."""
        for refusal in self.refusals:
            if refusal.kind in (None, kind) and refusal.head in (None, head):
                return refusal.reason
        return None

    def learner_class(self) -> Any:
        """Import and return the learner's class (this imports TensorFlow)."""
        return import_class(self.learner)


_ER = (replace(BATCH_NORM, default="joint"), ER_WEIGHTING)
_SUM_OF_MEANS = replace(ER_WEIGHTING, default="sum_of_means")
_SUM_OF_MEANS_ER = (replace(BATCH_NORM, default="joint"), _SUM_OF_MEANS)
_MIR = (CANDIDATES, BATCH_NORM, _SUM_OF_MEANS)
_MIR_RATES = LearningRates(mnist=0.05)
_EDITS = (EDIT_STRIDE, EDIT_REGULARIZATION, EDIT_DECAY)
_STABLE = (RATE_DECAY, MOMENTUM, DROPOUT)
_STABLE_REPLAY = (REPLAY_RATE_DECAY, MOMENTUM, DROPOUT)
_STABLE_RATES = LearningRates(0.1, 0.1, 0.1)
_NCCL = (SMOOTHNESS, SMOOTHNESS_MODE, GRADIENTS, DELTA, BETA_MAX, BATCH_NORM)

_ER_SOURCE = "Chaudhry et al., On tiny episodic memories in continual learning, 2019"
_GMED_SOURCE = (
    "Jin et al., Gradient-based editing of memory examples for online task-free continual "
    "learning, NeurIPS 2021"
)
_STABLE_SOURCE = (
    "Mirzadeh et al., Understanding the role of training regimes in continual learning, "
    "NeurIPS 2020"
)
_NCCL_SOURCE = (
    "Han et al., On the convergence of continual learning with adaptive methods, UAI 2023"
)

METHODS: dict[str, Method] = {
    row.name: row
    for row in (
        Method(
            "finetune", "Fine-tune", "nccl_tf.methods.finetune:Finetune",
            source="The lower bound of every table, without a paper of its own",
            on_replicas=True,
        ),
        Method(
            "er_ring", "ER-Ring", "nccl_tf.methods.er:ExperienceReplay", "ring",
            hyperparameters=_ER, source=_ER_SOURCE, on_replicas=True,
        ),
        Method(
            "er_reservoir", "ER-Reservoir", "nccl_tf.methods.er:ExperienceReplay", "reservoir",
            LearningRates(cifar=0.1, mini_imagenet=0.1), _ER, source=_ER_SOURCE, on_replicas=True,
        ),
        Method(
            "agem", "A-GEM", "nccl_tf.methods.agem:AGEM", "ring",
            hyperparameters=(SMOOTHNESS, SMOOTHNESS_MODE, GRADIENTS, BATCH_NORM),
            source="Chaudhry et al., Efficient lifelong learning with A-GEM, ICLR 2019",
            on_replicas=True,
        ),
        Method(
            "ewc", "EWC", "nccl_tf.methods.ewc:EWC",
            hyperparameters=(EWC_ESTIMATE, EWC_LAMBDA, EWC_WINDOW),
            source="Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, "
            "PNAS 114, 2017; online as the code of Chaudhry et al., Continual learning in low-rank "
            "orthogonal subspaces, NeurIPS 2020",
        ),
        Method(
            "gem", "GEM", "nccl_tf.methods.gem.method:GEM", "ring",
            hyperparameters=(
                GEM_MARGIN, GEM_RIDGE, GEM_SOLVER,
                replace(BATCH_NORM, choices=("separate", "frozen")),
            ),
            source="Lopez-Paz and Ranzato, Gradient episodic memory for continual learning, "
            "NeurIPS 2017",
            memory_batch=0,
        ),
        Method(
            "bgd", "BGD", "nccl_tf.methods.bgd:BGD",
            learning_rates=LearningRates(1.0, 1.0, 1.0),
            hyperparameters=(BGD_SAMPLES, BGD_SIGMA),
            source="Zeno et al., Task agnostic continual learning using online variational Bayes, "
            "2018",
        ),
        Method(
            "supsup", "SupSup", "nccl_tf.methods.supsup.method:SupSup",
            hyperparameters=(MASK_DENSITY, TASK_ID_AT_TEST),
            source="Wortsman et al., Supermasks in superposition, NeurIPS 2020",
            takes_num_tasks=True,
        ),
        Method(
            "stable_sgd", "Stable SGD", "nccl_tf.methods.stable:StableSGD",
            learning_rates=_STABLE_RATES, hyperparameters=_STABLE, source=_STABLE_SOURCE,
        ),
        Method(
            "stable_agem", "Stable A-GEM", "nccl_tf.methods.stable:StableAGEM", "ring",
            _STABLE_RATES, (*_STABLE_REPLAY, SMOOTHNESS, SMOOTHNESS_MODE, GRADIENTS, BATCH_NORM),
            source=_STABLE_SOURCE,
        ),
        Method(
            "stable_er_reservoir", "Stable ER-Reservoir", "nccl_tf.methods.stable:StableER",
            "reservoir", _STABLE_RATES, (*_STABLE_REPLAY, *_ER), source=_STABLE_SOURCE,
        ),
        Method(
            "mc_sgd", "MC-SGD", "nccl_tf.methods.mc_sgd:MCSGD", "ring", _STABLE_RATES,
            (*_STABLE, LINE_POINTS, LINE_START, LINE_RATE, LINE_STEPS, LINE_GRADIENT),
            source="Mirzadeh et al., Linear mode connectivity in multitask and continual learning, "
            "ICLR 2021",
        ),
        Method(
            "mer", "MER", "nccl_tf.methods.mer:MER", "reservoir", LearningRates(0.03, 0.03, 0.03),
            (
                MER_VARIANT, META_RATE, STREAM_MULTIPLIER, WITHIN_BATCH_RATE, BATCHES_PER_EXAMPLE,
            ),
            source="Riemer et al., Learning to learn without forgetting by maximizing transfer and "
            "minimizing interference, ICLR 2019; by default as the code of Chaudhry et al., "
            "Continual learning in low-rank orthogonal subspaces, NeurIPS 2020",
        ),
        Method(
            "orthog_subspace", "ORTHOG-SUBSPACE",
            "nccl_tf.methods.orthog_subspace.method:OrthogSubspace", "ring",
            LearningRates(cifar=0.4, mini_imagenet=0.2), (ORTHOG_MEMORY, CAYLEY_ITERATIONS),
            source="Chaudhry et al., Continual learning in low-rank orthogonal subspaces, "
            "NeurIPS 2020",
            memory_batch=0, takes_num_tasks=True,
        ),
        Method(
            "cn_dpm", "CN-DPM", "nccl_tf.methods.cn_dpm.method:CNDPM", "short_term",
            LearningRates(mnist=1e-4, cifar=5e-3, mini_imagenet=5e-3),
            (
                LOG_ALPHA, VAE_STEPS, CLASSIFIER_STEPS, SLEEP_BATCH_SIZE, VAE_RATE,
                CLASSIFIER_CHILL, MAX_EXPERTS,
            ),
            source="Lee et al., A neural Dirichlet process mixture model for task-free continual "
            "learning, ICLR 2020",
            memory_batch=0, networks=("mlp_experts", "conv_experts"),
        ),
        Method(
            "iid_online", "iid-online", "nccl_tf.methods.finetune:Finetune", joint=True,
            source="An upper bound without a paper of its own: one pass over all tasks at once",
            on_replicas=True,
        ),
        Method(
            "iid_offline", "iid-offline", "nccl_tf.methods.finetune:Finetune", joint=True,
            epochs=100,
            source="An upper bound without a paper of its own; 100 passes as Lee et al., A neural "
            "Dirichlet process mixture model for task-free continual learning, ICLR 2020",
            on_replicas=True,
        ),
        Method(
            "icarl", "iCaRL", "nccl_tf.methods.icarl.method:ICaRL", "exemplars",
            hyperparameters=(HERDING_POOL, replace(BATCH_NORM, default="joint")),
            refusals=(
                Refusal(
                    "it knows a task by its new classes, and every task of a permuted stream has "
                    "the same ones",
                    kind="permuted",
                ),
            ),
            source="Rebuffi et al., iCaRL: incremental classifier and representation learning, "
            "CVPR 2017",
        ),
        Method(
            "gdumb", "GDumb", "nccl_tf.methods.gdumb.method:GDumb", "balanced",
            LearningRates(0.05, 0.05, 0.05),
            (PASSES, CUTMIX, replace(MOMENTUM, default=0.9), WEIGHT_DECAY),
            source="Prabhu et al., GDumb: a simple approach that questions our progress in "
            "continual learning, ECCV 2020",
            memory_batch=16,
        ),
        Method(
            "gss_greedy", "GSS-Greedy", "nccl_tf.methods.gss:GSSGreedy", "scored",
            LearningRates(mnist=0.05, cifar=0.01, mini_imagenet=0.01),
            (GSS_ITERATIONS, GSS_GRADIENTS),
            source="Aljundi et al., Gradient based sample selection for online continual learning, "
            "NeurIPS 2019",
        ),
        Method(
            "mir", "MIR", "nccl_tf.methods.mir:MIR", "past_reservoir", _MIR_RATES, _MIR,
            source="Aljundi et al., Online continual learning with maximally interfered retrieval, "
            "NeurIPS 2019",
        ),
        Method(
            "er_gmed", "ER + GMED", "nccl_tf.methods.gmed:ERGMED", "edited_reservoir",
            _MIR_RATES, (*_SUM_OF_MEANS_ER, *_EDITS), source=_GMED_SOURCE,
        ),
        Method(
            "mir_gmed", "MIR + GMED", "nccl_tf.methods.gmed:MIRGMED", "past_edited_reservoir",
            _MIR_RATES, (*_MIR, *_EDITS), source=_GMED_SOURCE,
        ),
        Method(
            "multi_task", "Multi-task", "nccl_tf.methods.finetune:MultiTask", joint=True,
            source="Caruana, Multitask learning, Machine Learning 28, 1997; the protocol of "
            "Chaudhry et al., Efficient lifelong learning with A-GEM, ICLR 2019",
        ),
        Method(
            "nccl_ring", "NCCL + Ring", "nccl_tf.methods.nccl:NCCL", "ring",
            LearningRates(cifar=0.001, mini_imagenet=0.001), _NCCL, source=_NCCL_SOURCE,
            on_replicas=True,
        ),
        Method(
            "nccl_reservoir", "NCCL + Reservoir", "nccl_tf.methods.nccl:NCCL", "reservoir",
            LearningRates(cifar=0.003, mini_imagenet=0.003), _NCCL, source=_NCCL_SOURCE,
            on_replicas=True,
        ),
    )
}  # fmt: skip


def get_method(name: str) -> Method:
    """The row of a method.

    Raises:
        UserError: No method has that name; the message lists the names and suggests the nearest.
    """
    return METHODS[check_name("method", name, METHODS)]
