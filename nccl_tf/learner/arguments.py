"""The keyword arguments that learners inherit, named for type checkers and editors.

A constructor declares its own arguments, with their defaults; its subclasses name those that they
pass on as `**kwargs: Unpack[...]` of one of these. A class that gives an inherited argument another
default declares it again and takes the parts without it. At run time `constructors.show_arguments`
composes the same list from the constructors alone.
"""

from collections.abc import Sequence
from typing import TypedDict


class SharedArguments(TypedDict, total=False):
    """Of every learner, with one default for all."""

    heads: Sequence[Sequence[int]] | None
    mask: str
    seed: int
    known_classes: Sequence[int] | None
    average_weights: float | None
    name: str | None


class SharedReplayArguments(TypedDict, total=False):
    """Of every `ReplayLearner`, with one default for all."""

    memory_batch_size: int


class RateDecayArgument(TypedDict, total=False):
    """Of every learner; a method may have a default of its own."""

    rate_decay: float | None


class BatchNormArgument(TypedDict, total=False):
    """Of every `ReplayLearner`; a method may have a default of its own."""

    batch_norm: str


class LearnerArguments(SharedArguments, RateDecayArgument, total=False):
    """What a subclass of `Learner` inherits."""


class ReplayArguments(LearnerArguments, SharedReplayArguments, BatchNormArgument, total=False):
    """What a subclass of `ReplayLearner` inherits."""


class OwnBatchNormArguments(LearnerArguments, SharedReplayArguments, total=False):
    """What a subclass of `ReplayLearner` inherits that declares `batch_norm` itself."""


class OwnRateDecayArguments(SharedArguments, SharedReplayArguments, BatchNormArgument, total=False):
    """What a subclass of `ReplayLearner` inherits that declares `rate_decay` itself."""


class ReplayGradientArguments(ReplayArguments, total=False):
    """What a subclass of `ReplayGradientLearner` inherits."""

    smoothness: float
    smoothness_mode: str
    gradients: str
