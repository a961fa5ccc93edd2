"""The methods by name: a row each, without importing TensorFlow."""

import importlib
from dataclasses import dataclass, replace
from typing import Any

from nccl_tf.errors import check_name
from nccl_tf.methods.hyperparameters import (
    BATCH_NORM,
    BETA_MAX,
    DELTA,
    ER_WEIGHTING,
    SMOOTHNESS,
    Hyperparameter,
)


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
        learner: "module:Class" of the learner.
        memory: Kind of replay memory ("ring", "reservoir") or None.
        learning_rates: Defaults by family of data sets.
        hyperparameters: The method's own numbers, arguments of the learner's constructor unless
            their `part` says otherwise.
        joint: Whether it learns all tasks at once, on the union of their examples.
        refusals: Streams and heads that it has no meaning on.
    """

    name: str
    title: str
    learner: str
    memory: str | None = None
    learning_rates: LearningRates = LearningRates()
    hyperparameters: tuple[Hyperparameter, ...] = ()
    joint: bool = False
    refusals: tuple[Refusal, ...] = ()

    def refusal(self, kind: str, head: str) -> str | None:
        """Why the method has no meaning on a kind of stream with a head, or None if it has."""
        for refusal in self.refusals:
            if refusal.kind in (None, kind) and refusal.head in (None, head):
                return refusal.reason
        return None

    def learner_class(self) -> Any:
        """Import and return the learner's class (this imports TensorFlow)."""
        module, _, name = self.learner.partition(":")
        return getattr(importlib.import_module(module), name)


_ER = (replace(BATCH_NORM, default="joint"), ER_WEIGHTING)
_NCCL = (SMOOTHNESS, DELTA, BETA_MAX, BATCH_NORM)

METHODS: dict[str, Method] = {
    row.name: row
    for row in (
        Method("finetune", "Fine-tune", "nccl_tf.methods.finetune:Finetune"),
        Method(
            "er_ring", "ER-Ring", "nccl_tf.methods.er:ExperienceReplay", "ring", hyperparameters=_ER
        ),
        Method(
            "er_reservoir", "ER-Reservoir", "nccl_tf.methods.er:ExperienceReplay", "reservoir",
            LearningRates(cifar=0.1, mini_imagenet=0.1), _ER,
        ),
        Method(
            "agem", "A-GEM", "nccl_tf.methods.agem:AGEM", "ring",
            hyperparameters=(SMOOTHNESS, BATCH_NORM),
        ),
        Method(
            "nccl_ring", "NCCL + Ring", "nccl_tf.methods.nccl:NCCL", "ring",
            LearningRates(cifar=0.001, mini_imagenet=0.001), _NCCL,
        ),
        Method(
            "nccl_reservoir", "NCCL + Reservoir", "nccl_tf.methods.nccl:NCCL", "reservoir",
            LearningRates(cifar=0.003, mini_imagenet=0.003), _NCCL,
        ),
    )
}  # fmt: skip


def get_method(name: str) -> Method:
    """The row of a method.

    Raises:
        UserError: No method has that name; the message lists the names and suggests the nearest.
    """
    return METHODS[check_name("method", name, METHODS)]
