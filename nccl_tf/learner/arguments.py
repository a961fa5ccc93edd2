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
    rate_decay_steps: int | None
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


class DarkReplayArguments(TypedDict, total=False):
    """Of every `ReplayLearner`; a method may have defaults of its own."""

    dark: float
    replay_labels: float


class StreamMaskArgument(TypedDict, total=False):
    """Of every learner; a method may have a default of its own."""

    stream_mask: str


class LearnerArguments(SharedArguments, RateDecayArgument, StreamMaskArgument, total=False):
    """What a subclass of `Learner` inherits."""


class SampledPenaltyArguments(LearnerArguments, total=False):
    """What a subclass of `SampledPenaltyLearner` inherits."""

    importance_examples: int


class OwnDarkReplayArguments(LearnerArguments, SharedReplayArguments, total=False):
    """What a subclass of `ReplayLearner` inherits that declares dark replay and `batch_norm`."""


class OwnBatchNormArguments(OwnDarkReplayArguments, DarkReplayArguments, total=False):
    """What a subclass of `ReplayLearner` inherits that declares `batch_norm` itself."""


class OwnStreamMaskArguments(
    SharedArguments, RateDecayArgument, SharedReplayArguments, DarkReplayArguments, total=False
):
    """What a subclass of `ReplayLearner` inherits that declares `stream_mask` and `batch_norm`."""


class ReplayArguments(OwnBatchNormArguments, BatchNormArgument, total=False):
    """What a subclass of `ReplayLearner` inherits."""


class OwnRateDecayArguments(
    SharedArguments,
    StreamMaskArgument,
    SharedReplayArguments,
    BatchNormArgument,
    DarkReplayArguments,
    total=False,
):
    """What a subclass of `ReplayLearner` inherits that declares `rate_decay` itself."""


class ReplayGradientArguments(ReplayArguments, total=False):
    """What a subclass of `ReplayGradientLearner` inherits."""

    smoothness: float
    gradients: str
