"""The methods by name: a row each, without importing TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nccl_tf.arguments import hyperparameters as hp
from nccl_tf.arguments.choices import STORES
from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.errors import UserError, checked_name
from nccl_tf.extensions.registration import add_row, checked_identifier
from nccl_tf.memories.kinds import get_memory, import_class
from nccl_tf.methods.refusals import REFUSALS


@dataclass(frozen=True)
class LearningRates:
    """Default learning rates by family of data sets (the paper's starred values)."""

    mnist: float = 0.1
    cifar: float = 0.03
    mini_imagenet: float = 0.03

    def of_family(self, family: str) -> float:
        """The rate of a family; the lowest one where the family is none of these, as the safest."""
        return getattr(self, family, min(self.mnist, self.cifar, self.mini_imagenet))


@dataclass(frozen=True)
class Unsupported:
    """A kind of stream or head that a method has no meaning on.

    Args:
        reason: Why, as the end of a sentence that begins "METHOD cannot learn this stream: ".
        kind: "split", or "permuted" for every kind whose tasks have the same classes; None for
            both.
        head: "single" or "multi"; None for both.
    """

    reason: str
    kind: str | None = None
    head: str | None = None


@dataclass(frozen=True, kw_only=True)
class Method:
    r"""A row of the registry.

    Args:
        name: Name at the command.
        title: Name in tables, as the paper prints it.
        learner: "module:Class" of the learner, or the class itself.
        memory: Kind of memory, one of `nccl_tf.memories.kinds`, or None.
        memory_batch: Default number of examples drawn from the memory at once; 0 if none are.
        takes_num_tasks: Whether its constructor takes `num_tasks`, the number of tasks to learn.
        learning_rates: Defaults by family of data sets.
        hyperparameters: The method's own numbers, arguments of the learner's constructor unless
            their `part` says otherwise; left out, those that the learner's class declares itself.
        alpha_l_below_one: Whether its step sizes are defined only for $\alpha L < 1$, with $\alpha$
            the learning rate and $L$ its hyperparameter `smoothness`.
        joint: Whether it learns all tasks at once, on the union of their examples.
        unsupported: Streams and heads that it has no meaning on.
        epochs: Default number of passes over the training examples.
        batch_sizes: Default number of examples from the stream in a step: on MNIST and digits, and
            elsewhere.
        source: Where the method comes from: authors, title, venue and year.
        on_replicas: Whether it runs on several devices or workers (`Learner.on_replicas`).
        networks: The networks it can train: by default the first on MNIST and digits, the second
            elsewhere.
        options: Its defaults of `stores` and of those of `hyperparameters.OPTIONS` that have others
            than usual.
        refuses: Why an option has no meaning for it, the end of a sentence that begins with its
            name, by the option's name; "dark" stands for `replay_labels` too, "optimizer" for
            `optimizer_arguments`, "schedule" for those of steps, "diagnostics" for
            `ForgettingDiagnostics`.
        passes: What passes through the network beside the batches of the stream and the memory, in
            a few words; "" where nothing does.
    """

    name: str
    title: str
    learner: str | type
    memory: str | None = None
    memory_batch: int = 10
    takes_num_tasks: bool = False
    learning_rates: LearningRates = LearningRates()
    hyperparameters: tuple[Hyperparameter, ...] = ()
    alpha_l_below_one: bool = False
    joint: bool = False
    unsupported: tuple[Unsupported, ...] = ()
    epochs: int = 1
    batch_sizes: tuple[int, int] = (10, 10)
    source: str = ""
    on_replicas: bool = False
    networks: tuple[str, ...] = (
        "mlp", "resnet18_reduced", "resnet18", "resnet18_one_conv",
    )  # fmt: skip
    options: Mapping[str, Any] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    passes: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.learner, type) and not self.hyperparameters:
            own = vars(self.learner).get("hyperparameters", ())
            object.__setattr__(self, "hyperparameters", tuple(own))

    @property
    def stores(self) -> str | None:
        """The default of its argument `stores`; None where it stores no examples of the stream."""
        # Those that measure importances at a task's end keep a sample of it without a memory.
        samples = any(row.name == hp.IMPORTANCE_EXAMPLES.name for row in self.hyperparameters)
        if self.memory is None and not samples:
            return None
        return self.options.get("stores", STORES[0])

    def option_refusal(self, name: str) -> str:
        """Why an option has no meaning for the method, as in `refuses`; "" where it has one."""
        if name not in ("dark", "replay_labels"):
            return self.refuses.get(name, "")
        if not self.memory or not self.memory_batch:
            return self.refuses.get("dark", "draws no memory batch whose loss it would change")
        return self.refuses.get("dark", "")

    def unsupported_reason(self, kind: str, head: str) -> str | None:
        """Why the method has no meaning on a kind of stream with a head, or None if it has."""
        classes = "split" if kind == "split" else "permuted"
        for case in self.unsupported:
            if case.kind in (None, classes) and case.head in (None, head):
                return case.reason
        return None

    def bounding_smoothness(self, hyperparameters: Mapping[str, Any]) -> float:
        r"""The constant $L$ with which $\alpha L < 1$ must hold; 0 where nothing is asked of
        $\alpha$.

        Args:
            hyperparameters: Its numbers by name.
        """
        return hyperparameters["smoothness"] if self.alpha_l_below_one else 0.0

    def learner_class(self) -> Any:
        """Import and return the learner's class (this imports TensorFlow)."""
        return import_class(self.learner)


_ER = (replace(hp.BATCH_NORM, default="joint"), hp.ER_WEIGHTING)
_SUM_OF_MEANS = replace(hp.ER_WEIGHTING, default="sum_of_means")
_SUM_OF_MEANS_ER = (replace(hp.BATCH_NORM, default="joint"), _SUM_OF_MEANS)
_MIR = (hp.CANDIDATES, hp.BATCH_NORM, _SUM_OF_MEANS)
_MIR_RATES = LearningRates(mnist=0.05)
_EDITS = (hp.EDIT_STRIDE, hp.EDIT_REGULARIZATION, hp.EDIT_DECAY)
# The recipes that the author gives in place of the scripts', whose dropout of 0.5 is a typo and
# whose batches are too small on MNIST: github.com/imirzadeh/stable-continual-learning, issue 1 and
# 5 (MNIST: dropout 0.25, batches of 64) and 6 (CIFAR: rate 0.15, decay 0.85, dropout 0.1, 10).
_STABLE = (
    replace(hp.RATE_DECAY, on_images=0.85),
    hp.MOMENTUM,
    replace(hp.DROPOUT, on_images=0.1),
)
_STABLE_RATES = LearningRates(0.1, 0.15, 0.15)
_STABLE_BATCHES = (64, 10)
# Those of A-GEM and ER are in its external_libs: model/model.py, replicate_mnist_stable.sh. Batches
# of 32 are a part: with them 3,100 steps are about two tasks of its 50,000 examples, with ten less
# than one.
_STABLE_REPLAY = (
    replace(
        hp.RATE_DECAY,
        default=0.65,
        help="factor on the learning rate after every rate_decay_steps updates",
    ),
    replace(hp.RATE_DECAY_STEPS, default=3100),
    replace(hp.MOMENTUM, default=0.0),
    hp.DROPOUT,
)
_STABLE_REPLAY_RATES = LearningRates(0.1, 0.1, 0.1)
_STABLE_REPLAY_BATCHES = (32, 10)
_TWO_GRADIENTS = (
    replace(hp.SMOOTHNESS, help="smoothness constant of the loss in the logged Γ"),
    hp.GRADIENTS, hp.BATCH_NORM,
)  # fmt: skip
_NCCL = (
    hp.SMOOTHNESS, hp.GRADIENTS, hp.DELTA, hp.BETA_MAX, hp.GRAD_SCOPE,
    hp.BATCH_NORM, hp.BATCH_NORM_ORDER,
)  # fmt: skip


_ER_SOURCE = "Chaudhry et al., On tiny episodic memories in continual learning, 2019"
_DER_SOURCE = "Buzzega et al., Dark experience for general continual learning, NeurIPS 2020"
_GMED_SOURCE = (
    "Jin et al., Gradient-based editing of memory examples for online task-free continual "
    "learning, NeurIPS 2021"
)
_MEGA_SOURCE = (
    "Guo et al., Improved schemes for episodic memory-based lifelong learning, NeurIPS 2020"
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
            name="finetune",
            title="Fine-tune",
            learner="nccl_tf.methods.finetune:Finetune",
            on_replicas=True,
            source="The lower bound of every table, without a paper of its own",
        ),
        Method(
            name="er_ring",
            title="ER-Ring",
            learner="nccl_tf.methods.er:ExperienceReplay",
            memory="ring",
            hyperparameters=_ER,
            on_replicas=True,
            source=_ER_SOURCE,
        ),
        Method(
            name="er_reservoir",
            title="ER-Reservoir",
            learner="nccl_tf.methods.er:ExperienceReplay",
            memory="reservoir",
            learning_rates=LearningRates(cifar=0.1, mini_imagenet=0.1),
            hyperparameters=_ER,
            on_replicas=True,
            source=_ER_SOURCE,
        ),
        Method(
            name="agem",
            title="A-GEM",
            learner="nccl_tf.methods.agem:AGEM",
            memory="ring",
            hyperparameters=_TWO_GRADIENTS,
            on_replicas=True,
            source="Chaudhry et al., Efficient lifelong learning with A-GEM, ICLR 2019",
        ),
        Method(
            name="ewc",
            title="EWC",
            learner="nccl_tf.methods.ewc:EWC",
            hyperparameters=(hp.EWC_LAMBDA, hp.EWC_WINDOW),
            source=(
                "Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, "
                "PNAS 114, 2017; as the code of Chaudhry et al., Continual learning in "
                "low-rank orthogonal subspaces, NeurIPS 2020"
            ),
        ),
        Method(
            name="gem",
            title="GEM",
            passes="the whole memory, task by task",
            learner="nccl_tf.methods.gem:GEM",
            memory="ring",
            memory_batch=0,
            hyperparameters=(
                hp.GEM_MARGIN,
                hp.GEM_RIDGE,
                hp.GEM_BATCH_NORM,
            ),
            source=(
                "Lopez-Paz and Ranzato, Gradient episodic memory for continual learning, "
                "NeurIPS 2017"
            ),
            refuses=REFUSALS["gem"],
        ),
        Method(
            name="bgd",
            title="BGD",
            passes="the batch at ten draws of the weights",
            learner="nccl_tf.methods.bgd:BGD",
            learning_rates=LearningRates(mnist=1.0, cifar=1.0, mini_imagenet=1.0),
            hyperparameters=(hp.BGD_SAMPLES, hp.BGD_SIGMA),
            source=(
                "Zeno et al., Task agnostic continual learning using online variational Bayes, 2018"
            ),
        ),
        Method(
            name="supsup",
            title="SupSup",
            learner="nccl_tf.methods.supsup.method:SupSup",
            takes_num_tasks=True,
            # Of SGD, chosen on the tuning tasks of permuted MNIST; the authors have RMSProp.
            learning_rates=LearningRates(mnist=1.0),
            hyperparameters=(hp.MASK_DENSITY, hp.TASK_ID_AT_TEST, hp.SUPERFLUOUS_OUTPUTS),
            source="Wortsman et al., Supermasks in superposition, NeurIPS 2020",
            refuses=REFUSALS["supsup"],
        ),
        Method(
            name="stable_sgd",
            title="Stable SGD",
            learner="nccl_tf.methods.finetune:Finetune",
            learning_rates=_STABLE_RATES,
            batch_sizes=_STABLE_BATCHES,
            hyperparameters=_STABLE,
            source=_STABLE_SOURCE,
        ),
        Method(
            name="stable_agem",
            title="Stable A-GEM",
            learner="nccl_tf.methods.agem:AGEM",
            memory="ring",
            learning_rates=_STABLE_REPLAY_RATES,
            batch_sizes=_STABLE_REPLAY_BATCHES,
            hyperparameters=(*_STABLE_REPLAY, *_TWO_GRADIENTS),
            source=_STABLE_SOURCE,
        ),
        Method(
            name="stable_er_reservoir",
            title="Stable ER-Reservoir",
            learner="nccl_tf.methods.er:ExperienceReplay",
            memory="reservoir",
            learning_rates=_STABLE_REPLAY_RATES,
            batch_sizes=_STABLE_REPLAY_BATCHES,
            hyperparameters=(*_STABLE_REPLAY, *_ER),
            source=_STABLE_SOURCE,
        ),
        Method(
            name="mc_sgd",
            title="MC-SGD",
            passes="the memory along two lines, at a task's end",
            learner="nccl_tf.methods.mc_sgd:MCSGD",
            memory="ring",
            learning_rates=_STABLE_RATES,
            batch_sizes=_STABLE_BATCHES,
            hyperparameters=(
                *_STABLE,
                hp.LINE_POINTS,
                hp.LINE_START,
                hp.LINE_RATE,
                hp.LINE_STEPS,
                hp.LINE_EXAMPLES,
            ),
            source=(
                "Mirzadeh et al., Linear mode connectivity in multitask and continual learning, "
                "ICLR 2021"
            ),
            refuses=REFUSALS["mc_sgd"],
        ),
        Method(
            name="mer",
            title="MER",
            passes="every example by itself",
            learner="nccl_tf.methods.mer:MER",
            memory="reservoir",
            learning_rates=LearningRates(mnist=0.03, cifar=0.03, mini_imagenet=0.03),
            hyperparameters=(
                hp.META_RATE,
                hp.STREAM_MULTIPLIER,
                hp.MER_BATCH_NORM,
            ),
            source=(
                "Riemer et al., Learning to learn without forgetting by maximizing transfer and "
                "minimizing interference, ICLR 2019; as the code of Chaudhry et al., "
                "Continual learning in low-rank orthogonal subspaces, NeurIPS 2020"
            ),
            refuses=REFUSALS["mer"],
        ),
        Method(
            name="orthog_subspace",
            title="ORTHOG-SUBSPACE",
            passes="one past task of the memory",
            learner="nccl_tf.methods.orthog_subspace.method:OrthogSubspace",
            memory="ring",
            memory_batch=0,
            takes_num_tasks=True,
            learning_rates=LearningRates(cifar=0.4, mini_imagenet=0.2),
            hyperparameters=(hp.ORTHOG_MEMORY, hp.CAYLEY_ITERATIONS),
            source=(
                "Chaudhry et al., Continual learning in low-rank orthogonal subspaces, NeurIPS 2020"
            ),
            refuses=REFUSALS["orthog_subspace"],
        ),
        Method(
            name="cn_dpm",
            title="CN-DPM",
            passes="its short-term memory, by experts with density models",
            learner="nccl_tf.methods.cn_dpm.method:CNDPM",
            memory="short_term",
            memory_batch=0,
            networks=("mlp_experts", "conv_experts"),
            learning_rates=LearningRates(mnist=1e-4, cifar=5e-3, mini_imagenet=5e-3),
            hyperparameters=(
                hp.LOG_ALPHA,
                hp.VAE_STEPS,
                hp.CLASSIFIER_STEPS,
                hp.SLEEP_BATCH_SIZE,
                hp.VAE_RATE,
                hp.CLASSIFIER_CHILL,
                hp.MAX_EXPERTS,
            ),
            source=(
                "Lee et al., A neural Dirichlet process mixture model for task-free continual "
                "learning, ICLR 2020"
            ),
            refuses=REFUSALS["cn_dpm"],
            # Its memory is no sample: what no expert explains waits there, in whichever pass.
            options={"stores": STORES[1]},
        ),
        Method(
            name="iid_online",
            title="iid-online",
            learner="nccl_tf.methods.finetune:Finetune",
            joint=True,
            on_replicas=True,
            source="An upper bound without a paper of its own: one pass over all tasks at once",
        ),
        Method(
            name="iid_offline",
            title="iid-offline",
            learner="nccl_tf.methods.finetune:Finetune",
            joint=True,
            epochs=100,
            on_replicas=True,
            source=(
                "An upper bound without a paper of its own; 100 passes as Lee et al., A neural "
                "Dirichlet process mixture model for task-free continual learning, ICLR 2020"
            ),
        ),
        Method(
            name="icarl",
            title="iCaRL",
            passes="the batch by the network before the task",
            learner="nccl_tf.methods.icarl:ICaRL",
            memory="exemplars",
            hyperparameters=(hp.HERDING_POOL, replace(hp.BATCH_NORM, default="joint")),
            unsupported=(
                Unsupported(
                    "it knows a task by its new classes, and every task of this stream has the "
                    "same ones",
                    kind="permuted",
                ),
            ),
            source=(
                "Rebuffi et al., iCaRL: incremental classifier and representation learning, "
                "CVPR 2017"
            ),
            refuses=REFUSALS["icarl"],
        ),
        Method(
            name="gdumb",
            title="GDumb",
            passes="the memory many times, at a task's end; no step before",
            learner="nccl_tf.methods.gdumb:GDumb",
            memory="balanced",
            memory_batch=16,
            learning_rates=LearningRates(mnist=0.05, cifar=0.05, mini_imagenet=0.05),
            hyperparameters=(
                hp.PASSES,
                hp.CUTMIX,
                replace(hp.MOMENTUM, default=0.9),
                hp.WEIGHT_DECAY,
            ),
            source=(
                "Prabhu et al., GDumb: a simple approach that questions our progress in "
                "continual learning, ECCV 2020"
            ),
            refuses=REFUSALS["gdumb"],
        ),
        Method(
            name="gss_greedy",
            title="GSS-Greedy",
            passes="groups of the memory, for scores; several updates",
            learner="nccl_tf.methods.gss:GSSGreedy",
            memory="scored",
            learning_rates=LearningRates(mnist=0.05, cifar=0.01, mini_imagenet=0.01),
            hyperparameters=(hp.GSS_ITERATIONS, hp.GSS_GRADIENTS),
            source=(
                "Aljundi et al., Gradient based sample selection for online continual learning, "
                "NeurIPS 2019"
            ),
            refuses=REFUSALS["gss_greedy"],
        ),
        Method(
            name="mir",
            title="MIR",
            passes="candidates of the memory at two weights",
            learner="nccl_tf.methods.mir:MIR",
            memory="past_reservoir",
            learning_rates=_MIR_RATES,
            hyperparameters=_MIR,
            source=(
                "Aljundi et al., Online continual learning with maximally interfered retrieval, "
                "NeurIPS 2019"
            ),
        ),
        Method(
            name="er_ace",
            title="ER-ACE",
            learner="nccl_tf.methods.er_ace:ERACE",
            memory="reservoir",
            hyperparameters=(hp.BATCH_NORM, _SUM_OF_MEANS),
            unsupported=(
                Unsupported(
                    "a head is the mask that it puts on the stream; what is left is er_reservoir "
                    "with --er_weighting=sum_of_means",
                    head="multi",
                ),
            ),
            options={"stream_mask": "present"},
            on_replicas=True,
            source=(
                "Caccia et al., New insights on reducing abrupt representation change in online "
                "continual learning, ICLR 2022"
            ),
        ),
        Method(
            name="der",
            title="DER",
            learner="nccl_tf.methods.der:DER",
            memory="reservoir",
            hyperparameters=(hp.BATCH_NORM, _SUM_OF_MEANS),
            options={"dark": 0.5, "replay_labels": 0.0},
            on_replicas=True,
            source=_DER_SOURCE,
        ),
        Method(
            name="derpp",
            title="DER++",
            passes="a second memory batch",
            learner="nccl_tf.methods.der:DERpp",
            memory="reservoir",
            hyperparameters=(
                hp.DER_ALPHA,
                hp.DER_BETA,
                hp.BATCH_NORM,
            ),
            source=_DER_SOURCE,
            refuses=REFUSALS["derpp"],
        ),
        Method(
            name="lwf",
            title="LwF",
            passes="the batch by the network before the task",
            learner="nccl_tf.methods.lwf:LwF",
            hyperparameters=(
                hp.LWF_WEIGHT,
                hp.LWF_TEMPERATURE,
            ),
            source="Li and Hoiem, Learning without forgetting, TPAMI 40, 2018",
        ),
        Method(
            name="si",
            title="SI",
            learner="nccl_tf.methods.si:SI",
            hyperparameters=(
                hp.SI_C,
                hp.SI_XI,
            ),
            source=(
                "Zenke et al., Continual learning through synaptic intelligence, ICML 2017; as "
                "the authors' code"
            ),
        ),
        Method(
            name="online_ewc",
            title="Online EWC",
            passes="examples one by one, at a task's end",
            learner="nccl_tf.methods.online_ewc:OnlineEWC",
            hyperparameters=(
                replace(
                    hp.EWC_LAMBDA,
                    default=0.7,
                    help="weight of the penalty; with an α λ F above 1 it diverges",
                ),
                hp.EWC_GAMMA,
                hp.IMPORTANCE_EXAMPLES,
            ),
            source=(
                "Schwarz et al., Progress & Compress: a scalable framework for continual learning, "
                "ICML 2018; as the code of Buzzega et al., Dark experience for general continual "
                "learning, NeurIPS 2020"
            ),
        ),
        Method(
            name="mas",
            title="MAS",
            passes="examples one by one, at a task's end",
            learner="nccl_tf.methods.mas:MAS",
            hyperparameters=(
                hp.MAS_LAMBDA,
                hp.IMPORTANCE_EXAMPLES,
            ),
            source=(
                "Aljundi et al., Memory aware synapses: learning what (not) to forget, ECCV 2018"
            ),
        ),
        Method(
            name="mega1",
            title="MEGA-I",
            learner="nccl_tf.methods.mega:MEGAI",
            memory="ring",
            hyperparameters=(hp.MEGA_EPSILON, *_TWO_GRADIENTS),
            on_replicas=True,
            source=_MEGA_SOURCE,
        ),
        Method(
            name="mega2",
            title="MEGA-II",
            learner="nccl_tf.methods.mega:MEGAII",
            memory="ring",
            hyperparameters=_TWO_GRADIENTS,
            on_replicas=True,
            source=_MEGA_SOURCE,
        ),
        Method(
            name="gec",
            title="GEC",
            learner="nccl_tf.methods.gec:GEC",
            memory="reservoir",
            hyperparameters=(hp.GEC_ALPHA, hp.GEC_TOLERANCE, *_TWO_GRADIENTS),
            on_replicas=True,
            source=(
                "Lai et al., Gradient-guided epsilon constraint method for online continual "
                "learning, NeurIPS 2025: the single constraint of its section 5.1"
            ),
        ),
        Method(
            name="clser",
            title="CLS-ER",
            passes="the memory batch by two averages",
            learner="nccl_tf.methods.clser:CLSER",
            memory="reservoir",
            learning_rates=LearningRates(cifar=0.1, mini_imagenet=0.1),
            hyperparameters=(
                replace(hp.BATCH_NORM, default="joint"),
                hp.CLSER_WEIGHT,
                hp.STABLE_DECAY,
                hp.PLASTIC_DECAY,
                hp.STABLE_RATE,
                hp.PLASTIC_RATE,
            ),
            source=(
                "Arani, Sarfraz and Zonooz, Learning fast, learning slow: a general continual "
                "learning method based on complementary learning system, ICLR 2022"
            ),
            refuses=REFUSALS["clser"],
        ),
        Method(
            name="lpr",
            title="LPR",
            passes="the whole memory, every tenth step",
            learner="nccl_tf.methods.lpr.method:LPR",
            memory="reservoir",
            learning_rates=LearningRates(cifar=0.1, mini_imagenet=0.1),
            hyperparameters=(
                replace(hp.BATCH_NORM, default="joint"),
                hp.LPR_OMEGA,
                hp.LPR_BETA,
                hp.LPR_EVERY,
                hp.LPR_EXAMPLES,
            ),
            source=(
                "Yoo et al., Layerwise proximal replay: a proximal point method for online "
                "continual learning, ICML 2024"
            ),
        ),
        Method(
            name="slda",
            title="SLDA",
            learner="nccl_tf.methods.slda:SLDA",
            hyperparameters=(hp.SHRINKAGE,),
            source=(
                "Hayes and Kanan, Lifelong machine learning with deep streaming linear "
                "discriminant analysis, CVPR Workshops 2020; for pretrained networks, whose "
                "weights stay as they are"
            ),
            refuses=REFUSALS["slda"],
        ),
        Method(
            name="ncm",
            title="NCM",
            learner="nccl_tf.methods.ncm:NCM",
            hyperparameters=(hp.NCM_DISTANCE,),
            source=(
                "Mensink et al., Distance-based image classification: generalizing to new classes "
                "at near-zero cost, TPAMI 35, 2013; for pretrained networks, whose weights stay as "
                "they are"
            ),
            refuses=REFUSALS["ncm"],
        ),
        Method(
            name="ranpac",
            title="RanPAC",
            learner="nccl_tf.methods.ranpac:RanPAC",
            # A step writes the whole Gram matrix, and the results do not depend on its batch.
            batch_sizes=(100, 100),
            hyperparameters=(
                hp.PROJECTED_FEATURES,
                hp.RIDGE,
            ),
            source=(
                "McDonnell et al., RanPAC: random projections and pre-trained models for continual "
                "learning, NeurIPS 2023; for pretrained networks, whose weights stay as they are"
            ),
            refuses=REFUSALS["ranpac"],
        ),
        Method(
            name="er_gmed",
            title="ER + GMED",
            passes="the memory batch at two weights",
            learner="nccl_tf.methods.gmed:ERGMED",
            memory="edited_reservoir",
            learning_rates=_MIR_RATES,
            hyperparameters=(*_SUM_OF_MEANS_ER, *_EDITS),
            source=_GMED_SOURCE,
            refuses=REFUSALS["er_gmed"],
        ),
        Method(
            name="mir_gmed",
            title="MIR + GMED",
            passes="candidates of the memory at two weights",
            learner="nccl_tf.methods.gmed:MIRGMED",
            memory="past_edited_reservoir",
            learning_rates=_MIR_RATES,
            hyperparameters=(*_MIR, *_EDITS),
            source=_GMED_SOURCE,
            refuses=REFUSALS["mir_gmed"],
        ),
        Method(
            name="multi_task",
            title="Multi-task",
            learner="nccl_tf.methods.finetune:MultiTask",
            joint=True,
            source=(
                "Caruana, Multitask learning, Machine Learning 28, 1997; the protocol of "
                "Chaudhry et al., Efficient lifelong learning with A-GEM, ICLR 2019"
            ),
        ),
        Method(
            name="nccl_ring",
            title="NCCL + Ring",
            learner="nccl_tf.methods.nccl:NCCL",
            memory="ring",
            learning_rates=LearningRates(cifar=0.001, mini_imagenet=0.001),
            hyperparameters=_NCCL,
            alpha_l_below_one=True,
            on_replicas=True,
            source=_NCCL_SOURCE,
        ),
        Method(
            name="nccl_reservoir",
            title="NCCL + Reservoir",
            learner="nccl_tf.methods.nccl:NCCL",
            memory="reservoir",
            learning_rates=LearningRates(cifar=0.003, mini_imagenet=0.003),
            hyperparameters=_NCCL,
            alpha_l_below_one=True,
            on_replicas=True,
            source=_NCCL_SOURCE,
        ),
    )
}


def register_method(method: Method) -> None:
    """Add a method to the registry, so that it runs by name: in runs, sweeps and reports.

    Args:
        method: Its row.

    Raises:
        UserError: The name is taken or no lower-case identifier, no kind of memory has the name of
            its memory, or a hyperparameter of another kind has the name of one of its own.

    Example:
        >>> nccl_tf.register_method(
        ...     nccl_tf.Method(
        ...         name="my_method",
        ...         title="My method",
        ...         learner=MyLearner,
        ...         memory="ring",
        ...     )
        ... )
    """
    if method.memory is not None:
        get_memory(method.memory)
    kinds = {row.name: row.kind for other in METHODS.values() for row in other.hyperparameters}
    for row in method.hyperparameters:
        checked_identifier(row.name, f"the name of a hyperparameter of {method.name}")
        if kinds.get(row.name, row.kind) != row.kind:
            raise UserError(
                f"{method.name} has a hyperparameter {row.name!r} of the kind {row.kind!r}, and "
                f"other methods have one of the kind {kinds[row.name]!r}: choose another name"
            )
    add_row(METHODS, method, "method")


def get_method(name: str) -> Method:
    """The row of a method.

    Raises:
        UserError: No method has that name; the message lists the names and suggests the nearest.
    """
    titles = {row.title.lower(): row.name for row in METHODS.values()}
    if name not in METHODS and str(name).lower() in titles:
        raise UserError(
            f"received the method {name!r}, which is the title of one: its name is "
            f"{titles[str(name).lower()]!r}"
        )
    return METHODS[checked_name("method", name, METHODS)]
