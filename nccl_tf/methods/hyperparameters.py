"""The numbers of the methods, declared once: name, symbol, unit, default and range.

The command makes one flag of each, and a learner takes it as the constructor argument of that name.
This module imports nothing heavy, so that the command can explain itself at once.
"""

import math
from dataclasses import dataclass
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
        part: What takes it as an argument: the "learner", the "network" or the "optimizer".
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
