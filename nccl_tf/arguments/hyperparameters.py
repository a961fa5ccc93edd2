"""The numbers of methods: what a row of one holds, and those that several classes share.

The command makes one flag of each, and a learner takes it as the constructor argument of that name.
A method's own are in its file in `methods/rows`. This module imports nothing heavy, so that the
command can explain itself at once.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from nccl_tf.arguments.choices import (
    BATCH_NORMS,
    COVARIANCES,
    STREAM_MASKS,
)
from nccl_tf.arguments.parameters import Parameter
from nccl_tf.errors import UserError, checked_name

SAME_AS_DEFAULT = object()
KINDS = ("float", "int", "choice", "bool")


@dataclass(frozen=True)
class Hyperparameter(Parameter):
    """A number, choice or switch of a method; a class declares its own in `hyperparameters`.

    Args:
        **kwargs: As for `Parameter`; the kind is "float", "int", "choice" or "bool".
        part: What takes it as an argument: the "learner", the "network" or the "optimizer"; or
            "memory", where it says whether there is one; or "outputs", where it is a number of
            outputs that the network has beside those of the classes.
        on_images: The command's default on CIFAR and mini-ImageNet. Left out where it is no other.

    Raises:
        UserError: The kind is another.

    Example:
        >>> MEMORY_WEIGHT = Hyperparameter(
        ...     "memory_weight", "float", 0.5, symbol="w", unit="1", ge=0.0,
        ...     help="weight of the memory gradient",
        ... )
        >>> MEMORY_WEIGHT.check(0.25)
        0.25
    """

    _: KW_ONLY
    part: str = "learner"
    on_images: Any = SAME_AS_DEFAULT

    def __post_init__(self) -> None:
        checked_name(f"kind of the hyperparameter {self.name}", self.kind, KINDS)

    def taken(self, value: Any) -> Any:
        """A value as a learner keeps it: checked, and a Python float, int, str or bool.

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
BATCH_NORM = Hyperparameter(
    "batch_norm",
    "choice",
    "separate",
    choices=BATCH_NORMS,
    help="which statistics memory and stream batches are normalised with",
)
IMPORTANCE_EXAMPLES = Hyperparameter(
    "importance_examples",
    "int",
    2500,
    unit="examples",
    ge=1,
    help="size of the uniform sample of the open task that importances are measured on at its end",
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
ALIGNMENT = Hyperparameter(
    "alignment",
    "choice",
    None,
    choices=COVARIANCES,
    default_doc="none",
    help=(
        "single head: align it to features drawn of all classes when a task ends (SLCA), with "
        "one covariance for all classes (shared) or one for each (class)"
    ),
)
OPTIONS = (DARK, REPLAY_LABELS, STREAM_MASK, AVERAGE_WEIGHTS, ALIGNMENT)
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
