"""What a row of the methods' table holds, without TensorFlow."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_tf.arguments.choices import STORES
from nccl_tf.arguments.hyperparameters import IMPORTANCE_EXAMPLES, Hyperparameter
from nccl_tf.memories.kinds import import_class


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


@dataclass(frozen=True)
class Work:
    """The work of a run in numbers: steps, batches, memory and tasks.

    Args:
        task_steps: Steps of each task.
        batch_size: Rows of a stream batch.
        memory_batch_size: Rows of a draw from the memory; 0 where none are drawn.
        kind: Of the memory, one of `nccl_tf.memories.kinds`; None without one.
        capacity: Slots of the memory; 0 without one.
        task_examples: Training examples of each task.
        numbers: The method's own, by name.
        convolves: Whether the network has convolutions.
    """

    task_steps: Sequence[int]
    batch_size: int
    memory_batch_size: int
    kind: str | None
    capacity: int
    task_examples: Sequence[int]
    numbers: Mapping[str, Any]
    convolves: bool = False

    @property
    def steps(self) -> int:
        """Steps of all tasks."""
        return sum(self.task_steps)

    @property
    def stream(self) -> int:
        """Rows of all stream batches, padding of the last one of a pass included."""
        return self.steps * self.batch_size

    @property
    def replays(self) -> int:
        """Steps in which the memory has something to read.

        A ring and reservoirs of past tasks give nothing in the first task, others nothing in the
        first step.
        """
        if self.kind is None:
            return 0
        past = self.kind in ("ring", "exemplars") or self.kind.startswith("past")
        return self.steps - (self.task_steps[0] if past else 1)

    @property
    def memory(self) -> int:
        """Rows of one draw in each of those steps."""
        return self.replays * self.memory_batch_size

    def slots_of_a_task(self) -> int:
        """Slots of a ring for each task, which all have as many classes."""
        return self.capacity // len(self.task_steps)

    def stored_before(self, step: int) -> int:
        """Examples in a reservoir before a step, from 0."""
        return min(self.capacity, step * self.batch_size)

    def stored_after_tasks(self) -> list[int]:
        """Examples in a memory of all classes at the end of each task."""
        ends = itertools.accumulate(self.task_steps)
        return [self.stored_before(end) for end in ends]


@dataclass(frozen=True, kw_only=True)
class Method:
    r"""A row of the registry: what there is to say of a method beside its class.

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
        joins: Whether it learns at every task the union of all tasks so far.
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
        rows_passed: How many rows pass through the network in a run; None for `Work.stream`
            and `Work.memory` where `passes` is "", and else where it depends on the data.
        trial: Arguments with which `check_learner` tries the class, where it needs others than the
            defaults.
        place: Where it stands among the package's rows in help and tables, the lowest first, equal
            ones by name.
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
    joins: bool = False
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
    rows_passed: Callable[[Work], int] | None = None
    trial: Mapping[str, Any] = field(default_factory=dict)
    place: int = 500

    def __post_init__(self) -> None:
        if isinstance(self.learner, type) and not self.hyperparameters:
            own = vars(self.learner).get("hyperparameters", ())
            object.__setattr__(self, "hyperparameters", tuple(own))

    @property
    def stores(self) -> str | None:
        """The default of its argument `stores`; None where it stores and counts no examples."""
        # Those that measure importances at a task's end keep a sample of it without a memory.
        samples = any(row.name == IMPORTANCE_EXAMPLES.name for row in self.hyperparameters)
        return self.options.get("stores", STORES[0] if self.memory or samples else None)

    def option_refusal(self, name: str) -> str:
        """Why an option has no meaning for the method, as in `refuses`; "" where it has one."""
        if name not in ("dark", "replay_labels"):
            return self.refuses.get(name, "")
        if not self.memory or not self.memory_batch:
            return self.refuses.get("dark", "draws no memory batch whose loss it would change")
        return self.refuses.get("dark", "")

    def network_of(self, family: str) -> str:
        """The network that it trains by default on data of a family."""
        of_photographs = family in ("cifar", "mini_imagenet")
        return self.networks[1 if of_photographs and len(self.networks) > 1 else 0]

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

    def is_of(self, learner: type) -> bool:
        """Whether a class is the learner's, without importing it."""
        return self.learner in (learner, f"{learner.__module__}:{learner.__qualname__}")

    def learner_class(self) -> Any:
        """Import and return the learner's class (this imports TensorFlow)."""
        return import_class(self.learner)
